// Redisson clients that wait for one lock, each with connections of its own.
//
// usage: RedissonWaiters ADDRESS lock|fair CLIENTS [hold]
// With `hold`, the first client acquires the lock before the others wait.
// The program then prints "held".
// The program prints "granted" for each other client whose acquire returns.
// It runs until its standard input ends.

import java.util.ArrayList;
import java.util.List;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

public class RedissonWaiters {
    static RLock lockOf(String address, String kind) {
        Config config = new Config();
        config.setThreads(1);
        config.setNettyThreads(1);
        config.useSingleServer()
                .setAddress(address)
                .setConnectionMinimumIdleSize(1)
                .setConnectionPoolSize(2)
                .setSubscriptionConnectionMinimumIdleSize(1)
                .setSubscriptionConnectionPoolSize(2);

        RedissonClient client = Redisson.create(config);
        return kind.equals("fair") ? client.getFairLock("r") : client.getLock("r");
    }

    public static void main(String[] arguments) throws Exception {
        String address = arguments[0];
        String kind = arguments[1];
        int clients = Integer.parseInt(arguments[2]);
        boolean holds = arguments.length > 3;

        List<RLock> locks = new ArrayList<>();
        for (int number = 0; number < clients; number++) {
            locks.add(lockOf(address, kind));
        }
        if (holds) {
            locks.remove(0).lock();
            System.out.println("held");
        }

        for (RLock lock : locks) {
            Thread waiter = new Thread(() -> {
                lock.lock();
                System.out.println("granted");
            });
            waiter.setDaemon(true);
            waiter.start();
        }
        System.in.read();
        System.exit(0);
    }
}
