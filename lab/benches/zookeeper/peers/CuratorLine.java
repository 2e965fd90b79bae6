import java.util.Scanner;
import java.util.StringJoiner;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.ExponentialBackoffRetry;

/** Runs the tasks of kazoo_line.py with Curator. */
public class CuratorLine {
    static final ExecutorService WAITER = Executors.newSingleThreadExecutor(task -> {
        Thread thread = new Thread(task);
        thread.setDaemon(true);
        return thread;
    });

    static InterProcessMutex connect(String host) throws InterruptedException {
        CuratorFramework client =
                CuratorFrameworkFactory.newClient(host, new ExponentialBackoffRetry(100, 5));
        client.start();
        client.blockUntilConnected();
        return new InterProcessMutex(client, "/curator/a");
    }

    static long pair(InterProcessMutex lock) throws Exception {
        long begun = System.nanoTime();
        lock.acquire();
        lock.release();
        return System.nanoTime() - begun;
    }

    static long handOver(InterProcessMutex near, InterProcessMutex far) throws Exception {
        near.acquire();
        Future<Long> waiting = WAITER.submit(() -> {
            far.acquire();
            long granted = System.nanoTime();
            far.release();
            return granted;
        });
        while (near.getParticipantNodes().size() < 2) {
        }
        // The waiter sets its watch a moment after it has created its node.
        Thread.sleep(2);
        long begun = System.nanoTime();
        near.release();
        return waiting.get() - begun;
    }

    public static void main(String[] args) throws Exception {
        InterProcessMutex near = connect(args[0]);
        InterProcessMutex far = connect(args[0]);
        Scanner tasks = new Scanner(System.in);
        while (tasks.hasNext()) {
            boolean pairs = tasks.next().equals("pairs");
            StringJoiner took = new StringJoiner(" ");
            for (int left = tasks.nextInt(); left > 0; left--) {
                took.add(Long.toString(pairs ? pair(near) : handOver(near, far)));
            }
            System.out.println(took);
        }
        System.exit(0);
    }
}
