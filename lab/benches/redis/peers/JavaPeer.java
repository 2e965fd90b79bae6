import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.function.Function;
import java.util.function.IntFunction;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.RetryOneTime;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/**
 * The lock libraries in Java, chosen by the URL. Each contender is a thread.
 *
 * <p>Redisson's RLock has no token and no queue; a waiter sleeps until the message of a release.
 * Curator's InterProcessMutex has no token; a waiter sleeps until the node before its own is gone.
 *
 * <p>The moments are those of the monotonic clock. On a machine that was never suspended this clock
 * equals CLOCK_BOOTTIME.
 */
public class JavaPeer {
    interface Lock {
        void acquire() throws Exception;

        void release() throws Exception;
    }

    static Function<String, Lock> locks;
    static final ExecutorService threads = Executors.newCachedThreadPool();

    static Function<String, Lock> redisson(String urls) {
        Config config = new Config();
        String[] addresses = urls.replace("cluster:", "").split(",");
        if (urls.startsWith("cluster:")) {
            config.useClusterServers().addNodeAddress(addresses);
        } else if (addresses.length > 1) {
            config.useSentinelServers().setMasterName("main").addSentinelAddress(addresses);
        } else {
            config.useSingleServer().setAddress(urls);
        }

        RedissonClient client = Redisson.create(config);
        return name -> {
            RLock lock = client.getLock(name);
            return new Lock() {
                public void acquire() {
                    lock.lock();
                }

                public void release() {
                    lock.unlock();
                }
            };
        };
    }

    static Function<String, Lock> curator(String host) {
        CuratorFramework client = CuratorFrameworkFactory.newClient(host, new RetryOneTime(1000));
        client.start();
        return name -> {
            InterProcessMutex lock = new InterProcessMutex(client, "/curator/" + name);
            return new Lock() {
                public void acquire() throws Exception {
                    lock.acquire();
                }

                public void release() throws Exception {
                    lock.release();
                }
            };
        };
    }

    static String field(String task, String name) {
        Matcher found = Pattern.compile("\"" + name + "\":\"?([^\",}]*)").matcher(task);
        return found.find() ? found.group(1) : "";
    }

    static long number(String task, String name) {
        return Long.parseLong(field(task, name));
    }

    static List<Long> pairs(String name, long count) throws Exception {
        Lock lock = locks.apply(name);
        List<Long> took = new ArrayList<>();
        for (long pair = 0; pair < count; pair++) {
            long begun = System.nanoTime();
            lock.acquire();
            lock.release();
            took.add(System.nanoTime() - begun);
        }
        return took;
    }

    static List<Long> contend(String task) throws Exception {
        Lock lock = locks.apply(field(task, "name"));
        long hold = number(task, "hold_micros");
        List<Long> moments = new ArrayList<>();
        while (System.nanoTime() < number(task, "until")) {
            moments.add(System.nanoTime());
            lock.acquire();
            moments.add(System.nanoTime());
            Thread.sleep(hold / 1000, (int) (hold % 1000) * 1000);
            moments.add(System.nanoTime());
            lock.release();
        }
        return moments;
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
        String url = arguments[0];
        String host = url.replace("zookeeper://", "");
        locks = host.equals(url) ? redisson(url) : curator(host);

        BufferedReader tasks = new BufferedReader(new InputStreamReader(System.in));
        for (String task = tasks.readLine(); task != null; task = tasks.readLine()) {
            System.out.println(run(task));
        }
        System.exit(0);
    }
}
