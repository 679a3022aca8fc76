import java.sql.*;
import java.util.*;
import org.postgresql.PGConnection;

/** Asks the server as programs do that use PostgreSQL's JDBC driver, and prints what it hears: one line for each question. */
public class PgJdbc {
    interface Question {
        Object ask() throws Exception;
    }

    static void say(String name, Question question) {
        try {
            System.out.println(name + ": " + question.ask());
        } catch (Exception error) {
            String state = error instanceof SQLException ? ((SQLException) error).getSQLState() + " " : "";
            System.out.println(name + ": ERROR " + state + String.valueOf(error.getMessage()).replace('\n', ' '));
        }
    }

    static String rows(ResultSet result, String... columns) throws SQLException {
        List<String> rows = new ArrayList<>();
        while (result.next()) {
            List<String> row = new ArrayList<>();
            if (columns.length == 0) {
                for (int at = 1; at <= result.getMetaData().getColumnCount(); at++) row.add(result.getString(at));
            }
            for (String column : columns) row.add(result.getString(column));
            rows.add(String.join("|", row.stream().map(String::valueOf).toList()));
        }
        result.close();
        return rows.toString();
    }

    public static void main(String[] arguments) throws Exception {
        String url = arguments[0];
        try (Connection c = DriverManager.getConnection(url)) {
            DatabaseMetaData meta = c.getMetaData();
            say("product", () -> meta.getDatabaseProductName() + " " + meta.getDatabaseMajorVersion());
            say("catalogs", () -> rows(meta.getCatalogs(), "TABLE_CAT"));
            say("schemas", () -> rows(meta.getSchemas(), "TABLE_SCHEM"));
            say("tables", () -> rows(meta.getTables(null, "public", "%", new String[] {"TABLE"}), "TABLE_NAME", "TABLE_TYPE", "REMARKS"));
            say("all tables", () -> rows(meta.getTables(null, null, "totals", null), "TABLE_SCHEM", "TABLE_NAME"));
            say("columns", () -> rows(meta.getColumns(null, "public", "totals", "%"), "COLUMN_NAME", "TYPE_NAME", "DATA_TYPE", "COLUMN_SIZE", "DECIMAL_DIGITS", "IS_NULLABLE"));
            say("primary key", () -> rows(meta.getPrimaryKeys(null, "public", "totals"), "COLUMN_NAME", "KEY_SEQ", "PK_NAME"));
            say("no primary key", () -> rows(meta.getPrimaryKeys(null, "public", "clicks")));
            say("indexes", () -> rows(meta.getIndexInfo(null, "public", "totals", true, true), "INDEX_NAME", "COLUMN_NAME"));
            say("imported", () -> rows(meta.getImportedKeys(null, "public", "totals")));
            say("exported", () -> rows(meta.getExportedKeys(null, "public", "totals")));
            say("cross", () -> rows(meta.getCrossReference(null, "public", "totals", null, "public", "clicks")));
            say("procedures", () -> rows(meta.getProcedures(null, "public", "%"), "PROCEDURE_NAME"));
            say("functions", () -> rows(meta.getFunctions(null, "public", "%"), "FUNCTION_NAME"));
            say("function columns", () -> rows(meta.getFunctionColumns(null, "public", "%", "%"), "FUNCTION_NAME"));
            say("table types", () -> rows(meta.getTableTypes()).contains("TABLE"));
            say("types", () -> { String found = rows(meta.getTypeInfo(), "TYPE_NAME"); return found.contains("int4") && found.contains("numeric"); });
            say("udts", () -> rows(meta.getUDTs(null, "public", "%", null)));
            say("privileges", () -> rows(meta.getTablePrivileges(null, "public", "totals"), "PRIVILEGE").contains("SELECT"));
            say("column privileges", () -> rows(meta.getColumnPrivileges(null, "public", "totals", "n"), "PRIVILEGE").contains("SELECT"));
            say("best row", () -> rows(meta.getBestRowIdentifier(null, "public", "totals", 1, true), "COLUMN_NAME"));
            say("client info", () -> rows(meta.getClientInfoProperties(), "NAME").contains("ApplicationName"));
            say("keywords", () -> meta.getSQLKeywords().length() > 10);
            say("name length", () -> meta.getMaxColumnNameLength());

            say("statement", () -> { try (Statement s = c.createStatement()) { return rows(s.executeQuery("SELECT user_id, size FROM clicks")); } });
            say("prepared", () -> {
                try (PreparedStatement s = c.prepareStatement("SELECT n, amount, ts, d, t, ok, f, b FROM totals WHERE user_id = ?")) {
                    Set<String> seen = new LinkedHashSet<>();
                    for (int turn = 0; turn < 8; turn++) {  // from the fifth on the driver keeps it at the server, and takes binary
                        s.setString(1, "ada");
                        ResultSet r = s.executeQuery();
                        r.next();
                        seen.add(r.getLong(1) + "|" + r.getBigDecimal(2) + "|" + r.getObject(3, java.time.LocalDateTime.class) + "|"
                            + r.getObject(4, java.time.LocalDate.class) + "|" + r.getObject(5, java.time.LocalTime.class) + "|"
                            + r.getBoolean(6) + "|" + r.getDouble(7) + "|" + r.getBytes(8).length);
                    }
                    return seen;
                }
            });
            say("every type", () -> {
                try (PreparedStatement s = c.prepareStatement(
                        "SELECT user_id FROM totals WHERE n = ? AND i = ? AND f < ? AND ok = ? AND amount = ? AND d = ? AND ts > ? AND t = ?")) {
                    Set<String> seen = new LinkedHashSet<>();
                    for (int turn = 0; turn < 8; turn++) {
                        s.setLong(1, 3); s.setInt(2, 7); s.setDouble(3, 2.5); s.setBoolean(4, true);
                        s.setBigDecimal(5, new java.math.BigDecimal("12.50"));
                        s.setObject(6, java.time.LocalDate.of(2020, 2, 3));
                        s.setObject(7, java.time.LocalDateTime.of(2019, 1, 1, 0, 0));
                        s.setObject(8, java.time.LocalTime.of(10, 11, 12));
                        seen.add(rows(s.executeQuery()));
                    }
                    return seen;
                }
            });
            say("java.sql.Timestamp", () -> {
                try (PreparedStatement s = c.prepareStatement("SELECT user_id FROM totals WHERE ts > ?")) {
                    s.setTimestamp(1, Timestamp.valueOf("2019-01-01 00:00:00"));
                    return rows(s.executeQuery());
                }
            });
            say("arrays", () -> {
                try (Statement s = c.createStatement()) {
                    ResultSet r = s.executeQuery("SELECT tags, nums FROM totals WHERE user_id = 'ada'");
                    r.next();
                    return Arrays.toString((Object[]) r.getArray(1).getArray()) + Arrays.toString((Object[]) r.getArray(2).getArray());
                }
            });
            say("described", () -> {
                try (PreparedStatement s = c.prepareStatement("SELECT user_id, n FROM totals WHERE n = ?")) {
                    ResultSetMetaData m = s.getMetaData();
                    return m.getColumnName(1) + "|" + m.getColumnTypeName(2) + "|" + s.getParameterMetaData().getParameterTypeName(1);
                }
            });
            say("batch", () -> {
                try (PreparedStatement s = c.prepareStatement("INSERT INTO secret (id, v) VALUES (?, ?)")) {
                    for (int row = 100; row < 103; row++) { s.setInt(1, row); s.setInt(2, row); s.addBatch(); }
                    return Arrays.toString(s.executeBatch());
                }
            });
            say("in parts", () -> {
                c.setAutoCommit(false);
                try (Statement s = c.createStatement()) {
                    s.setFetchSize(2);
                    return rows(s.executeQuery("SELECT user_id FROM clicks"));
                } finally { c.commit(); c.setAutoCommit(true); }
            });
            say("push", () -> {
                c.setAutoCommit(false);
                try (Statement s = c.createStatement()) {
                    s.execute("SET auto.offset.reset = 'earliest'");
                    s.setFetchSize(1);
                    ResultSet r = s.executeQuery("SELECT user_id, size FROM clicks EMIT CHANGES");
                    List<String> seen = new ArrayList<>();
                    for (int row = 0; row < 3; row++) { r.next(); seen.add(r.getString(1)); }
                    Collections.sort(seen);
                    return seen;
                } finally { c.commit(); c.setAutoCommit(true); }
            });
            say("cancel", () -> {
                try (Statement s = c.createStatement()) {
                    s.setQueryTimeout(1);
                    return rows(s.executeQuery("SELECT * FROM clicks EMIT CHANGES"));
                }
            });
            say("alive", () -> c.isValid(20));
            say("copied out", () -> {
                java.io.StringWriter out = new java.io.StringWriter();
                long count = c.unwrap(PGConnection.class).getCopyAPI().copyOut("COPY (SELECT user_id, size FROM clicks) TO STDOUT (FORMAT csv)", out);
                return count + " " + out.toString().replace('\n', ';');
            });
            say("copied in", () -> c.unwrap(PGConnection.class).getCopyAPI().copyIn(
                "COPY secret (id, v) FROM STDIN (FORMAT csv)", new java.io.StringReader("201,1\n202,2\n")));
            say("no program", () -> {
                try (Statement s = c.createStatement()) { return s.execute("COPY clicks TO PROGRAM 'true'"); }
            });
            say("written", () -> {
                try (PreparedStatement s = c.prepareStatement("INSERT INTO totals (user_id, d, t, ts, m, s, tags) VALUES (?, ?, ?, ?, ?, ?::json, ?)")) {
                    org.postgresql.util.PGobject map = new org.postgresql.util.PGobject();
                    map.setType("json");
                    map.setValue("{\"x\": 1}");
                    for (int turn = 0; turn < 7; turn++) {
                        s.setString(1, "jdbc");
                        s.setDate(2, java.sql.Date.valueOf("2020-03-01"));
                        s.setTime(3, Time.valueOf("10:11:12"));
                        s.setTimestamp(4, Timestamp.valueOf("2020-03-01 10:11:12"), Calendar.getInstance(TimeZone.getTimeZone("UTC")));
                        s.setObject(5, map);
                        s.setString(6, "{\"a\": 1, \"b\": \"y\"}");
                        s.setArray(7, c.createArrayOf("text", new String[] {}));
                        s.executeUpdate();
                    }
                    try (Statement q = c.createStatement()) {
                        return rows(q.executeQuery("SELECT d, t, ts, m, s, tags FROM totals WHERE user_id = 'jdbc'"));
                    }
                }
            });
            say("found by dates", () -> {
                Set<String> seen = new LinkedHashSet<>();
                for (String mode : List.of("extended", "simple")) {
                    try (Connection d = DriverManager.getConnection(url + "&preferQueryMode=" + mode);
                            PreparedStatement s = d.prepareStatement("SELECT user_id FROM totals WHERE d = ? AND t = ? AND ts = ? AND user_id = ?")) {
                        for (int turn = 0; turn < 7; turn++) {
                            s.setDate(1, java.sql.Date.valueOf("2020-03-01"));
                            s.setTime(2, Time.valueOf("10:11:12"));
                            s.setTimestamp(3, Timestamp.valueOf("2020-03-01 10:11:12"));  // in New York
                            s.setString(4, "jdbc");
                            seen.add(rows(s.executeQuery()));
                        }
                    }
                }
                return seen;
            });
            say("null", () -> {
                try (PreparedStatement s = c.prepareStatement("SELECT count(*) FROM totals WHERE user_id = 'ada' AND (? IS NULL OR n = ?)")) {
                    s.setNull(1, Types.BIGINT);
                    s.setNull(2, Types.BIGINT);
                    ResultSet r = s.executeQuery();
                    r.next();
                    return r.getLong("count");
                }
            });
            say("rewritten batch", () -> {
                try (Connection d = DriverManager.getConnection(url + "&reWriteBatchedInserts=true");
                        PreparedStatement s = d.prepareStatement("INSERT INTO secret (id, v) VALUES (?, ?)")) {
                    for (int row = 300; row < 350; row++) { s.setInt(1, row); s.setNull(2, Types.INTEGER); s.addBatch(); }
                    return s.executeBatch().length;
                }
            });
            say("generated keys", () -> {
                try (Statement s = c.createStatement()) { return s.executeUpdate("INSERT INTO secret (id, v) VALUES (400, 1)", Statement.RETURN_GENERATED_KEYS); }
            });
            say("read only", () -> {
                c.setReadOnly(true);
                c.setAutoCommit(false);
                try (Statement s = c.createStatement()) { return s.executeUpdate("INSERT INTO secret (id, v) VALUES (401, 1)"); }
                finally { c.rollback(); c.setAutoCommit(true); c.setReadOnly(false); }
            });
            say("isolation", () -> {
                c.setTransactionIsolation(Connection.TRANSACTION_SERIALIZABLE);
                return c.getTransactionIsolation();
            });
            say("transaction", () -> {
                c.setAutoCommit(false);
                try (Statement s = c.createStatement()) { s.execute("SELECT 1"); s.execute("SELECT nope FROM clicks"); return "taken"; }
                finally { c.rollback(); c.setAutoCommit(true); }
            });
        }
    }
}
