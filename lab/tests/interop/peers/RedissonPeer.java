import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.RFencedLock;
import org.redisson.api.RLock;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RedissonClient;
import org.redisson.config.BaseMasterSlaveServersConfig;
import org.redisson.config.ClusterServersConfig;
import org.redisson.config.Config;
import org.redisson.config.NameMapper;
import org.redisson.config.SentinelServersConfig;

/**
 * Uses locks of Redisson: RedissonPeer ADDRESS[,ADDRESS…] WATCHDOG_MS PREFIX. Several addresses are
 * those of sentinels, or of the nodes of a cluster after `cluster:`.
 *
 * <p>Reads a command from each line, and prints one line for each: an answer, or `error` and the
 * exception. `cycle` prints one line per hold, with the times of its begin and end.
 */
public class RedissonPeer {
    static RedissonClient client;

    static RLock lock(String kind, String name) {
        switch (kind) {
            case "lock": return client.getLock(name);
            case "spin": return client.getSpinLock(name);
            case "fenced": return client.getFencedLock(name);
            case "fair": return client.getFairLock(name);
            case "read": return client.getReadWriteLock(name).readLock();
            case "write": return client.getReadWriteLock(name).writeLock();
            default: throw new IllegalArgumentException(kind);
        }
    }

    static String cycle(RLock lock, int cycles, int pauseMillis) throws Exception {
        for (int cycle = 0; cycle < cycles; cycle++) {
            lock.lock();
            long granted = System.nanoTime();
            long until = System.nanoTime();
            lock.unlock();
            System.out.println(granted + " " + until);
            Thread.sleep(pauseMillis);
        }
        return "done";
    }

    static void keepFewConnections(BaseMasterSlaveServersConfig<?> servers) {
        servers.setMasterConnectionMinimumIdleSize(1);
        servers.setMasterConnectionPoolSize(4);
        servers.setSlaveConnectionMinimumIdleSize(1);
        servers.setSlaveConnectionPoolSize(4);
        servers.setSubscriptionConnectionMinimumIdleSize(1);
        servers.setSubscriptionConnectionPoolSize(2);
    }

    /** Returns how long each acquire and release took together, in nanoseconds. */
    static String pairs(RLock lock, int pairs) {
        StringBuilder times = new StringBuilder();
        for (int pair = 0; pair < pairs; pair++) {
            long begun = System.nanoTime();
            lock.lock();
            lock.unlock();
            times.append(System.nanoTime() - begun).append(' ');
        }
        return times.toString();
    }

    static String permits(String[] words) throws Exception {
        RPermitExpirableSemaphore semaphore = client.getPermitExpirableSemaphore(words[1]);
        switch (words[0]) {
            case "permit-size": return semaphore.trySetPermits(Integer.parseInt(words[2])) + "";
            case "permit-take": {
                long lease = Long.parseLong(words[3]);
                int count = Integer.parseInt(words[2]);
                return String.join(",", semaphore.acquire(count, lease, TimeUnit.MILLISECONDS));
            }
            case "permit-try": {
                List<String> taken = semaphore.tryAcquire(Integer.parseInt(words[2]));
                return taken == null || taken.isEmpty() ? "none" : String.join(",", taken);
            }
            case "permit-give": return semaphore.tryRelease(Arrays.asList(words[2].split(","))) + "";
            case "permit-counts": return semaphore.availablePermits() + "/" + semaphore.getPermits();
            case "permit-cycle": {
                for (int cycle = 0; cycle < Integer.parseInt(words[2]); cycle++) {
                    int count = Integer.parseInt(words[3]);
                    List<String> taken = semaphore.acquire(count, 30, TimeUnit.SECONDS);
                    long granted = System.nanoTime();
                    long until = System.nanoTime();
                    semaphore.release(taken);
                    System.out.println(granted + " " + until);
                    Thread.sleep(1);
                }
                return "done";
            }
            case "permit-plain": return client.getSemaphore(words[1]).tryAcquire() + "";
            default: throw new IllegalArgumentException(words[0]);
        }
    }

    static String answer(String[] words) throws Exception {
        if (words[0].startsWith("permit-")) {
            return permits(words);
        }
        RLock lock = lock(words[1], words[2]);
        switch (words[0]) {
            case "lock": lock.lock(); return System.nanoTime() + "";
            case "lock-for": lock.lock(Long.parseLong(words[3]), TimeUnit.MILLISECONDS); return "held";
            case "wait": return lock.tryLock(Long.parseLong(words[3]), TimeUnit.MILLISECONDS) + "";
            case "try": return lock.tryLock() + "";
            case "token": return ((RFencedLock) lock).lockAndGetToken() + "";
            case "unlock": lock.unlock(); return System.nanoTime() + "";
            case "release": {
                long begun = System.nanoTime();
                lock.unlock();
                return begun + "";
            }
            case "locked": return lock.isLocked() + "";
            case "mine": return lock.isHeldByCurrentThread() + "";
            case "count": return lock.getHoldCount() + "";
            case "left": return lock.remainTimeToLive() + "";
            case "force": return lock.forceUnlock() + "";
            case "pairs": return pairs(lock, Integer.parseInt(words[3]));
            case "cycle": {
                int pauseMillis = words.length > 4 ? Integer.parseInt(words[4]) : 1;
                return cycle(lock, Integer.parseInt(words[3]), pauseMillis);
            }
            default: throw new IllegalArgumentException(words[0]);
        }
    }

    public static void main(String[] arguments) throws Exception {
        Config config = new Config();
        config.setThreads(2);
        config.setNettyThreads(2);
        config.setLockWatchdogTimeout(Long.parseLong(arguments[1]));
        String prefix = arguments.length > 2 ? arguments[2] : "";
        config.setNameMapper(new NameMapper() {
            public String map(String name) {
                return prefix + name;
            }

            public String unmap(String name) {
                return name.substring(prefix.length());
            }
        });
        boolean isCluster = arguments[0].startsWith("cluster:");
        String[] addresses = arguments[0].replace("cluster:", "").split(",");
        if (isCluster) {
            ClusterServersConfig cluster = config.useClusterServers();
            keepFewConnections(cluster.addNodeAddress(addresses).setScanInterval(500));
        } else if (addresses.length == 1) {
            config.useSingleServer()
                    .setAddress(addresses[0])
                    .setConnectionMinimumIdleSize(1)
                    .setConnectionPoolSize(4)
                    .setSubscriptionConnectionMinimumIdleSize(1)
                    .setSubscriptionConnectionPoolSize(2);
        } else {
            SentinelServersConfig sentinels = config.useSentinelServers();
            sentinels.setMasterName("main").addSentinelAddress(addresses);
            keepFewConnections(sentinels.setScanInterval(500));
        }
        client = Redisson.create(config);
        System.out.println("ready");

        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            try {
                System.out.println(answer(line.split(" ")));
            } catch (Exception error) {
                System.out.println("error " + error);
            }
        }
        System.exit(0);
    }
}
