import java.net.URI;
import java.nio.file.Files;
import java.nio.file.Path;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.Types;
import java.util.ArrayList;
import java.util.List;

/** Every case with JDBC: as a text that is cast, as an object of another type, and through the function. */
public class Producers {
    static final String INSERT = "insert into postrider.event (topic, type, key, payload) values (?, 'made', ?, ";

    public static void main(String[] arguments) throws Exception {
        List<String> cases = strings(Files.readString(Path.of(arguments[0])));
        URI uri = new URI(System.getenv("DATABASE_URL"));
        String server = "jdbc:postgresql://" + uri.getHost() + ":" + uri.getPort() + uri.getPath() + "?user=" + uri.getUserInfo();
        try (Connection db = DriverManager.getConnection(server);
                Connection untyped = DriverManager.getConnection(server + "&stringtype=unspecified")) {
            for (int key = 0; key < cases.size(); key++) {
                String json = cases.get(key);
                emit(db, INSERT + "cast(? as json))", "jdbc.insert", "" + key, json, Types.VARCHAR);
                emit(db, INSERT + "?)", "jdbc-other.insert", "" + key, json, Types.OTHER);
                emit(untyped, INSERT + "?)", "jdbc-unspecified.insert", "" + key, json, Types.VARCHAR);
                String emit = "select postrider.emit(?, 'made', ?, ?)";
                emit(db, emit, "jdbc.emit", (long) key, json, Types.VARCHAR);
                emit(untyped, emit, "jdbc-unspecified.emit", "" + key, json, Types.VARCHAR);
            }
            try (var statement = db.prepareStatement(INSERT + "cast(? as json))", new String[] {"id"})) {
                statement.setString(1, "jdbc-keys.insert");
                statement.setString(2, "0");
                statement.setString(3, cases.get(0));
                statement.executeUpdate();
                var keys = statement.getGeneratedKeys();
                if (!keys.next() || keys.getLong(1) <= 0) throw new IllegalStateException("no id came back");
            }
        }
    }

    static void emit(Connection db, String sql, String topic, Object key, String json, int type) throws Exception {
        try (var statement = db.prepareStatement(sql)) {
            statement.setString(1, topic);
            statement.setObject(2, key);
            statement.setObject(3, json, type);
            statement.execute();
        }
    }

    /** The strings of a JSON array of strings, without a library for it. */
    static List<String> strings(String json) {
        List<String> found = new ArrayList<>();
        StringBuilder text = null;
        for (int at = 0; at < json.length(); at++) {
            char c = json.charAt(at);
            if (c == '"') {
                if (text == null) {
                    text = new StringBuilder();
                } else {
                    found.add(text.toString());
                    text = null;
                }
            } else if (text != null && c == '\\') {
                char escaped = json.charAt(++at);
                text.append(escaped == 'n' ? '\n' : escaped);
            } else if (text != null) {
                text.append(c);
            }
        }
        return found;
    }
}
