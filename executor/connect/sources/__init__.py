"""Sources other than change data capture: generated records, files, objects, SQL queries, HTTP, MQTT, web hooks."""
