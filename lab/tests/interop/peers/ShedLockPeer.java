import java.sql.Connection;
import java.sql.Statement;
import java.time.Duration;
import java.util.Optional;
import java.util.Scanner;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import net.javacrumbs.shedlock.core.ClockProvider;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.LockProvider;
import net.javacrumbs.shedlock.core.SimpleLock;
import net.javacrumbs.shedlock.provider.jdbc.JdbcLockProvider;
import org.postgresql.ds.PGSimpleDataSource;

/**
 * One machine of jobs under ShedLock: ShedLockPeer JDBC-URL.
 *
 * <p>Reads lines `ID NAME MILLIS COMMAND`, runs each COMMAND under its lock in the folder of this
 * process, and prints `ID CODE`: that of COMMAND, or 75 if the lock is not granted and 69 without the
 * database. A run whose MILLIS are over does not unlock, as if it was killed, and prints -1.
 */
public class ShedLockPeer {
    static final Duration AT_MOST = Duration.ofSeconds(60);
    static final Duration AT_LEAST = Duration.ofSeconds(40);

    public static void main(String[] args) throws Exception {
        PGSimpleDataSource database = new PGSimpleDataSource();
        database.setURL(args[0]);
        try (Connection connection = database.getConnection();
                Statement statement = connection.createStatement()) {
            statement.execute("SELECT pg_advisory_lock(1)");
            statement.execute(
                    "CREATE TABLE IF NOT EXISTS shedlock(name varchar(64) PRIMARY KEY, lock_until"
                            + " timestamp NOT NULL, locked_at timestamp NOT NULL, locked_by"
                            + " varchar(255) NOT NULL)");
        }
        LockProvider provider = new JdbcLockProvider(database);
        System.out.println("ready");

        ExecutorService runs = Executors.newCachedThreadPool();
        Scanner lines = new Scanner(System.in);
        while (lines.hasNextLine()) {
            String[] words = lines.nextLine().split(" ", 4);
            long killedAt = System.nanoTime() + Long.parseLong(words[2]) * 1_000_000;
            runs.submit(() -> System.out.println(
                    words[0] + " " + run(provider, words[1], words[3], killedAt)));
        }
        runs.shutdown();
    }

    static int run(LockProvider provider, String name, String command, long killedAt) {
        Optional<SimpleLock> lock;
        try {
            lock = provider.lock(
                    new LockConfiguration(ClockProvider.now(), name, AT_MOST, AT_LEAST));
        } catch (RuntimeException unavailable) {
            return 69;
        }
        if (lock.isEmpty()) {
            return 75;
        }

        try {
            boolean isInTime = System.nanoTime() < killedAt;
            int code = isInTime ? new ProcessBuilder("sh", "-c", command).start().waitFor() : -1;
            if (System.nanoTime() > killedAt) {
                return -1;
            }
            lock.get().unlock();
            return code;
        } catch (Exception unavailable) {
            // The lock stays until its longest time is over.
            return 0;
        }
    }
}
