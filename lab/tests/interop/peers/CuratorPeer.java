import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.retry.ExponentialBackoffRetry;

/**
 * Takes a lock of Curator's, again and again, and tells of it as a taker does: CuratorPeer HOST PATH KIND HAND CYCLES OFFSET.
 * OFFSET is what CLOCK_BOOTTIME is ahead of the clock that Java has.
 */
public class CuratorPeer {
    static final int WHOLE = 1 << 30;
    static long offset;
    static String hand;

    static long now() {
        return System.nanoTime() + offset;
    }

    static void tell(long at, String what) {
        System.out.println(at + " " + hand + " 0 " + what);
    }

    /** The name of its own node is known to the lock alone. */
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
        hand = args[3];
        int cycles = Integer.parseInt(args[4]);
        offset = Long.parseLong(args[5]);
        CuratorFramework client = CuratorFrameworkFactory.newClient(args[0], new ExponentialBackoffRetry(100, 5));
        client.start();
        client.blockUntilConnected(30, TimeUnit.SECONDS);
        InterProcessReadWriteLock both = new InterProcessReadWriteLock(client, path);
        Named named = new Named(client, path);
        InterProcessMutex lock = kind.equals("reader") ? both.readLock() : kind.equals("writer") ? both.writeLock() : named;
        String share = kind.equals("reader") ? "1 " + WHOLE : kind.equals("writer") ? WHOLE + " " + WHOLE : "1 1";
        for (int cycle = 0; cycle < cycles; cycle++) {
            tell(now(), "requested");
            lock.acquire();
            long at = now();
            String node = kind.equals("mutex") ? named.path() : own(client, lock);
            long number = client.checkExists().forPath(node).getCzxid();
            tell(at, "granted " + number + " " + share);
            tell(now(), "releasing");
            lock.release();
            tell(now(), "released");
        }
        client.close();
    }

    /** A node in line whose session is ours, as there is one at a time. */
    static String own(CuratorFramework client, InterProcessMutex lock) throws Exception {
        long session = client.getZookeeperClient().getZooKeeper().getSessionId();
        for (String node : lock.getParticipantNodes()) {
            org.apache.zookeeper.data.Stat stat = client.checkExists().forPath(node);
            if (stat != null && stat.getEphemeralOwner() == session) {
                return node;
            }
        }
        throw new IllegalStateException("it holds, and has no node");
    }
}
