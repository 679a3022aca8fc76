import java.util.Collections;
import java.util.List;
import java.util.Map;
import org.opensearch.common.settings.Settings;
import org.opensearch.node.InternalSettingsPreparer;
import org.opensearch.node.Node;
import org.opensearch.transport.Netty4Plugin;

/** A single node of OpenSearch, as its jars on Maven Central are. Arguments: its folder, its port. */
public final class OpenSearchServer {
    private static final class Single extends Node {
        Single(Settings settings) {
            super(InternalSettingsPreparer.prepareEnvironment(settings, Collections.emptyMap(), null, () -> "node"),
                List.of(Netty4Plugin.class), false);
        }
    }

    public static void main(String[] arguments) throws Exception {
        Settings settings = Settings.builder()
            .put("path.home", arguments[0])
            .put("cluster.name", "tests")
            .put("discovery.type", "single-node")
            .put("http.port", arguments[1])
            .put("http.host", "127.0.0.1")
            .put("transport.host", "127.0.0.1")
            .put("transport.port", "0")
            .put("transport.type", "netty4")
            .put("http.type", "netty4")
            .put("cluster.routing.allocation.disk.threshold_enabled", "false")
            .build();
        new Single(settings).start();
        System.out.println("started");
        Thread.currentThread().join();
    }
}
