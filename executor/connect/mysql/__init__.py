"""MySQL and MariaDB as a source: snapshots of tables, and the changes in the binary log."""
