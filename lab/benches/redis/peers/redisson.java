import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.function.IntFunction;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/**
 * Redisson's RLock: no token and no queue. A waiter sleeps until the message of a release. Each
 * contender is a thread.
 *
 * <p>The moments are those of the monotonic clock. On a machine that was never suspended this clock
 * equals CLOCK_BOOTTIME.
 */
public class redisson {
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

    static List<Long> contend(String task) throws InterruptedException {
        RLock lock = client.getLock("c");
        List<Long> moments = new ArrayList<>();
        while (System.nanoTime() < number(task, "until")) {
            moments.add(System.nanoTime());
            lock.lock();
            moments.add(System.nanoTime());
            pause(number(task, "hold_micros"));
            moments.add(System.nanoTime());
            lock.unlock();
            pause(number(task, "think_micros"));
        }
        return moments;
    }

    static void pause(long micros) throws InterruptedException {
        if (micros > 0) {
            Thread.sleep(micros / 1000, (int) (micros % 1000) * 1000);
        }
    }

    /** Runs the work in this number of threads, and returns all results in one list. */
    static List<Long> together(long count, IntFunction<Callable<List<Long>>> work) throws Exception {
        List<Future<List<Long>>> running = new ArrayList<>();
        for (int number = 0; number < count; number++) {
            running.add(threads.submit(work.apply(number)));
        }
        List<Long> all = new ArrayList<>();
        for (Future<List<Long>> one : running) {
            all.addAll(one.get());
        }
        return all;
    }

    static List<Long> run(String task) throws Exception {
        switch (field(task, "do")) {
            case "pairs": return pairs(field(task, "name"), number(task, "count"));
            case "names": {
                long begun = System.nanoTime();
                long each = number(task, "each");
                together(number(task, "names"), name -> () -> pairs("n" + name, each));
                return List.of(System.nanoTime() - begun);
            }
            case "contend": return together(number(task, "threads"), thread -> () -> contend(task));
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
