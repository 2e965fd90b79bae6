import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Proxy;
import java.sql.Connection;
import java.sql.Statement;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.sql.DataSource;
import net.javacrumbs.shedlock.core.ClockProvider;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.LockProvider;
import net.javacrumbs.shedlock.core.SimpleLock;
import net.javacrumbs.shedlock.provider.jdbc.JdbcLockProvider;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.ExponentialBackoffRetry;
import org.postgresql.ds.PGSimpleDataSource;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/** The tasks of workload.rs with a library of Java: JavaPeer LIBRARY URL. */
public class JavaPeer {
    interface Library {
        Lock lock(String name) throws Exception;
    }

    /** A lock of one name. An acquire returns what releases it. */
    interface Lock {
        Release acquire() throws Exception;
    }

    interface Release {
        void release() throws Exception;
    }

    static final ExecutorService threads = Executors.newCachedThreadPool();

    /** Redisson's RLock: no token and no queue; a waiter sleeps until the message of a release. */
    static Library redisson(String url) {
        Config config = new Config();
        config.useSingleServer().setAddress(url);
        RedissonClient client = Redisson.create(config);
        return name -> {
            RLock lock = client.getLock(name);
            return () -> {
                lock.lock();
                return lock::unlock;
            };
        };
    }

    static Library curator(String url) throws Exception {
        CuratorFramework client = CuratorFrameworkFactory.newClient(
                url.replace("zookeeper://", ""), new ExponentialBackoffRetry(100, 5));
        client.start();
        client.blockUntilConnected();
        return name -> {
            InterProcessMutex lock = new InterProcessMutex(client, "/curator/" + name);
            return () -> {
                lock.acquire();
                return lock::release;
            };
        };
    }

    /**
     * ShedLock, which does not wait, over a connection of each thread, as a pool would keep it. A
     * thread that is refused tries again after a pause, as a lease in a row does in postgres.rs.
     */
    static Library shedlock(String url) throws Exception {
        // The driver takes the user apart from the host.
        PGSimpleDataSource database = new PGSimpleDataSource();
        database.setURL("jdbc:" + url.replace("postgres://postgres@", "postgresql://"));
        database.setUser("postgres");
        try (Connection connection = database.getConnection();
                Statement statement = connection.createStatement()) {
            // Several peers may make it at once.
            statement.execute("SELECT pg_advisory_lock(1)");
            statement.execute("CREATE TABLE IF NOT EXISTS shedlock(name varchar(64) PRIMARY KEY,"
                    + " lock_until timestamp NOT NULL, locked_at timestamp NOT NULL,"
                    + " locked_by varchar(255) NOT NULL)");
        }
        LockProvider provider = new JdbcLockProvider(poolOf(database));
        return name -> () -> {
            Duration longest = Duration.ofSeconds(30);
            while (true) {
                LockConfiguration taken =
                        new LockConfiguration(ClockProvider.now(), name, longest, Duration.ZERO);
                Optional<SimpleLock> lock = provider.lock(taken);
                if (lock.isPresent()) {
                    return lock.get()::unlock;
                }
                Thread.sleep(10);
            }
        };
    }

    /** A pool of one connection for each thread, which stays open when it is closed. */
    static DataSource poolOf(DataSource database) {
        ThreadLocal<Object> kept = new ThreadLocal<>();
        return (DataSource) proxy(DataSource.class, (pool, get, none) -> {
            if (kept.get() == null) {
                Connection connection = database.getConnection();
                kept.set(proxy(Connection.class, (self, method, arguments) ->
                        method.getName().equals("close")
                                ? null : method.invoke(connection, arguments)));
            }
            return kept.get();
        });
    }

    static Object proxy(Class<?> type, InvocationHandler handler) {
        return Proxy.newProxyInstance(
                JavaPeer.class.getClassLoader(), new Class<?>[] {type}, handler);
    }

    static String field(String task, String name) {
        Matcher found = Pattern.compile("\"" + name + "\":\"?([^\",}]*)").matcher(task);
        return found.find() ? found.group(1) : "";
    }

    static long number(String task, String name) {
        return Long.parseLong(field(task, name));
    }

    static List<Long> pairs(Lock lock, long count) throws Exception {
        List<Long> took = new ArrayList<>();
        for (long pair = 0; pair < count; pair++) {
            long begun = System.nanoTime();
            lock.acquire().release();
            took.add(System.nanoTime() - begun);
        }
        return took;
    }

    static List<Long> names(Library library, long names, long each) throws Exception {
        long begun = System.nanoTime();
        List<Future<List<Long>>> running = new ArrayList<>();
        for (long number = 0; number < names; number++) {
            String name = "n" + number;
            running.add(threads.submit(() -> pairs(library.lock(name), each)));
        }
        for (Future<List<Long>> one : running) {
            one.get();
        }
        return List.of(System.nanoTime() - begun);
    }

    /** The monotonic clock is CLOCK_BOOTTIME on a machine that was never suspended. */
    static List<Long> contend(Lock lock, long count, long until) throws Exception {
        List<Future<List<Long>>> running = new ArrayList<>();
        for (long number = 0; number < count; number++) {
            running.add(threads.submit(() -> {
                List<Long> moments = new ArrayList<>();
                while (System.nanoTime() < until) {
                    moments.add(System.nanoTime());
                    Release held = lock.acquire();
                    moments.add(System.nanoTime());
                    moments.add(System.nanoTime());
                    held.release();
                }
                return moments;
            }));
        }
        List<Long> all = new ArrayList<>();
        for (Future<List<Long>> one : running) {
            all.addAll(one.get());
        }
        return all;
    }

    static List<Long> run(Library library, String task) throws Exception {
        switch (field(task, "do")) {
            case "pairs": return pairs(library.lock(field(task, "name")), number(task, "count"));
            case "names": return names(library, number(task, "names"), number(task, "each"));
            case "contend": return contend(library.lock(field(task, "name")),
                    number(task, "threads"), number(task, "until"));
            default: return null;
        }
    }

    static Library open(String library, String url) throws Exception {
        switch (library) {
            case "redisson": return redisson(url);
            case "curator": return curator(url);
            default: return shedlock(url);
        }
    }

    public static void main(String[] arguments) throws Exception {
        Library library = open(arguments[0], arguments[1]);

        BufferedReader tasks = new BufferedReader(new InputStreamReader(System.in));
        for (String task = tasks.readLine(); task != null; task = tasks.readLine()) {
            System.out.println(run(library, task));
        }
        System.exit(0);
    }
}
