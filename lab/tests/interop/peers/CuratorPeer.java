import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.retry.ExponentialBackoffRetry;

/**
 * Acquires and releases a lock of Curator repeatedly: CuratorPeer HOST PATH KIND THREAD CYCLES OFFSET.
 *
 * <p>Prints its events as a worker of the lab does. OFFSET is how far CLOCK_BOOTTIME is ahead of
 * Java's clock, in nanoseconds.
 */
public class CuratorPeer {
    static final int RW_CAPACITY = 1 << 30;
    static long offset;
    static String thread;

    static long now() {
        return System.nanoTime() + offset;
    }

    static void record(long at, String event) {
        System.out.println(at + " " + thread + " 0 " + event);
    }

    /** A mutex that shows the path of its own node. */
    static class Named extends InterProcessMutex {
        Named(CuratorFramework client, String path) {
            super(client, path);
        }

        String path() {
            return getLockPath();
        }
    }

    public static void main(String[] args) throws Exception {
        String path = args[1];
        String kind = args[2];
        thread = args[3];
        int cycles = Integer.parseInt(args[4]);
        offset = Long.parseLong(args[5]);
        CuratorFramework client = CuratorFrameworkFactory.newClient(args[0], new ExponentialBackoffRetry(100, 5));
        client.start();
        client.blockUntilConnected(30, TimeUnit.SECONDS);
        InterProcessReadWriteLock both = new InterProcessReadWriteLock(client, path);
        Named named = new Named(client, path);
        InterProcessMutex lock = kind.equals("reader") ? both.readLock() : kind.equals("writer") ? both.writeLock() : named;
        String share = kind.equals("reader") ? "1 " + RW_CAPACITY : kind.equals("writer") ? RW_CAPACITY + " " + RW_CAPACITY : "1 1";
        for (int cycle = 0; cycle < cycles; cycle++) {
            record(now(), "requested");
            lock.acquire();
            long at = now();
            String node = kind.equals("mutex") ? named.path() : own(client, lock);
            long number = client.checkExists().forPath(node).getCzxid();
            record(at, "granted " + number + " " + share);
            record(now(), "releasing");
            lock.release();
            record(now(), "released");
        }
        client.close();
    }

    /** Finds the node of this session. A session has one node at a time. */
    static String own(CuratorFramework client, InterProcessMutex lock) throws Exception {
        long session = client.getZookeeperClient().getZooKeeper().getSessionId();
        for (String node : lock.getParticipantNodes()) {
            org.apache.zookeeper.data.Stat stat = client.checkExists().forPath(node);
            if (stat != null && stat.getEphemeralOwner() == session) {
                return node;
            }
        }
        throw new IllegalStateException("the lock is held and has no node");
    }
}
