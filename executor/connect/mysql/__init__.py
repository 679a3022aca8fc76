"""Change data capture from MySQL and MariaDB: snapshots of tables, and the changes in the binary log."""
