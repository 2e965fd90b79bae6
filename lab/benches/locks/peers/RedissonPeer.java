import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/** Redisson's RLock: no token and no queue; a waiter sleeps until the message of a release. */
public class RedissonPeer {
    static RedissonClient client;
    static final ExecutorService threads = Executors.newCachedThreadPool();

    static String field(String task, String name) {
        Matcher found = Pattern.compile("\"" + name + "\":\"?([^\",}]*)").matcher(task);
        return found.find() ? found.group(1) : "";
    }

    static long number(String task, String name) {
        return Long.parseLong(field(task, name));
    }

    static List<Long> pairs(String name, long count) {
        RLock lock = client.getLock(name);
        List<Long> took = new ArrayList<>();
        for (long pair = 0; pair < count; pair++) {
            long begun = System.nanoTime();
            lock.lock();
            lock.unlock();
            took.add(System.nanoTime() - begun);
        }
        return took;
    }

    static List<Long> names(long names, long each) throws Exception {
        long begun = System.nanoTime();
        List<Future<List<Long>>> running = new ArrayList<>();
        for (long number = 0; number < names; number++) {
            String name = "n" + number;
            running.add(threads.submit(() -> pairs(name, each)));
        }
        for (Future<List<Long>> one : running) {
            one.get();
        }
        return List.of(System.nanoTime() - begun);
    }

    static List<Long> run(String task) throws Exception {
        switch (field(task, "do")) {
            case "pairs": return pairs(field(task, "name"), number(task, "count"));
            case "names": return names(number(task, "names"), number(task, "each"));
            default: return null;
        }
    }

    public static void main(String[] arguments) throws Exception {
        Config config = new Config();
        config.useSingleServer().setAddress(arguments[0]);
        client = Redisson.create(config);

        BufferedReader tasks = new BufferedReader(new InputStreamReader(System.in));
        for (String task = tasks.readLine(); task != null; task = tasks.readLine()) {
            System.out.println(run(task));
        }
        System.exit(0);
    }
}
