// Sets the counter that numbers the children of nodes, in the data of a server that is not running.
//
// Arguments: the data folder, then pairs of a path and a number.

import java.io.File;
import java.util.concurrent.ConcurrentHashMap;

import org.apache.zookeeper.server.DataNode;
import org.apache.zookeeper.server.DataTree;
import org.apache.zookeeper.server.persistence.FileTxnSnapLog;

public final class ChildCounter {
    public static void main(String[] args) throws Exception {
        File folder = new File(args[0]);
        FileTxnSnapLog files = new FileTxnSnapLog(folder, folder);
        DataTree tree = new DataTree();
        ConcurrentHashMap<Long, Integer> sessions = new ConcurrentHashMap<>();
        files.restore(tree, sessions, (header, record, digest) -> { });

        for (int at = 1; at < args.length; at += 2) {
            DataNode node = tree.getNode(args[at]);
            node.stat.setCversion(Integer.parseInt(args[at + 1]));
        }

        files.save(tree, sessions, true);
        files.close();
    }
}
