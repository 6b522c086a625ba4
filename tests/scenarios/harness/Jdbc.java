import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.ResultSetMetaData;
import java.sql.SQLException;
import java.sql.Statement;
import java.sql.Types;
import java.util.Base64;

/**
 * One connection of the Hive JDBC driver, driven by lines on standard input: a verb and base64 texts between tabs.
 * Answers are lines too: "ok" and fields, or "error", SQLSTATE, code, message and class as the driver's exception has them. The
 * fields of a result are the names of its columns, their types, and its rows.
 */
public final class Jdbc {
    private static Connection connection;
    private static Statement begun;
    private static Thread runner;
    private static volatile String ended;

    public static void main(String[] arguments) throws Exception {
        try {
            Class.forName("org.apache.hive.jdbc.HiveDriver");
            connection = DriverManager.getConnection(arguments[0], arguments[1], "");
            say("ok");
        } catch (SQLException error) {
            say(shown(error));
            return;
        }
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] fields = line.split("\t");
            try {
                switch (fields[0]) {
                    case "execute" -> execute(decoded(fields[1]));
                    case "prepared" -> prepared(fields);
                    case "limited" -> limited(Integer.parseInt(fields[1]), decoded(fields[2]));
                    case "start" -> start(decoded(fields[1]));
                    case "cancel" -> {
                        begun.cancel();
                        say("ok");
                    }
                    case "end" -> {
                        runner.join();
                        say(ended);
                    }
                    default -> throw new IllegalArgumentException(fields[0]);
                }
            } catch (SQLException error) {
                say(shown(error));
            }
        }
        connection.close();
        System.exit(0);
    }

    private static void execute(String text) throws SQLException {
        try (Statement statement = connection.createStatement()) {
            say(statement.execute(text) ? rows(statement.getResultSet()) : "ok");
        }
    }

    /** Executes a statement with Statement.setQueryTimeout. */
    private static void limited(int seconds, String text) throws SQLException {
        try (Statement statement = connection.createStatement()) {
            statement.setQueryTimeout(seconds);
            say(statement.execute(text) ? rows(statement.getResultSet()) : "ok");
        }
    }

    /** The parameters follow the statement: "-" is NULL, "n" and a base64 text a whole number, "s" and one a string. */
    private static void prepared(String[] fields) throws SQLException {
        try (PreparedStatement statement = connection.prepareStatement(decoded(fields[1]))) {
            for (int at = 2; at < fields.length; at++) {
                String value = fields[at].substring(1);
                switch (fields[at].charAt(0)) {
                    case '-' -> statement.setNull(at - 1, Types.VARCHAR);
                    case 'n' -> statement.setLong(at - 1, Long.parseLong(decoded(value)));
                    case 's' -> statement.setString(at - 1, decoded(value));
                    default -> throw new IllegalArgumentException(fields[at]);
                }
            }
            say(statement.execute() ? rows(statement.getResultSet()) : "ok");
        }
    }

    private static void start(String text) throws SQLException {
        begun = connection.createStatement();
        runner = new Thread(() -> {
            try {
                ended = begun.execute(text) ? rows(begun.getResultSet()) : "ok";
            } catch (SQLException error) {
                ended = shown(error);
            }
        });
        runner.start();
        say("ok");
    }

    private static String rows(ResultSet result) throws SQLException {
        ResultSetMetaData columns = result.getMetaData();
        StringBuilder out = new StringBuilder("ok\t");
        for (int at = 1; at <= columns.getColumnCount(); at++) {
            out.append(at == 1 ? "" : ",").append(encoded(columns.getColumnLabel(at)));
        }
        out.append('\t');
        for (int at = 1; at <= columns.getColumnCount(); at++) {
            out.append(at == 1 ? "" : ",").append(encoded(columns.getColumnTypeName(at)));
        }
        while (result.next()) {
            out.append('\t');
            for (int at = 1; at <= columns.getColumnCount(); at++) {
                out.append(at == 1 ? "" : ",").append(encoded(result.getString(at)));
            }
        }
        return out.toString();
    }

    private static String shown(SQLException error) {
        return "error\t" + error.getSQLState() + "\t" + error.getErrorCode() + "\t" + encoded(error.getMessage())
            + "\t" + error.getClass().getSimpleName();
    }

    private static void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    private static String encoded(String text) {
        return text == null ? "-" : Base64.getEncoder().encodeToString(text.getBytes(StandardCharsets.UTF_8));
    }

    private static String decoded(String text) {
        return new String(Base64.getDecoder().decode(text), StandardCharsets.UTF_8);
    }
}
