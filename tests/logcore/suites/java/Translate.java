import java.time.Duration;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.connect.mirror.MirrorClient;
import org.apache.kafka.connect.mirror.RemoteClusterUtils;

/** What MirrorMaker's client reads in the log at the first argument: of the source and the group that follow. */
public class Translate {
    public static void main(String[] arguments) throws Exception {
        Map<String, Object> settings = Map.of("bootstrap.servers", arguments[0]);
        Map<TopicPartition, OffsetAndMetadata> found =
            RemoteClusterUtils.translateOffsets(settings, arguments[1], arguments[2], Duration.ofSeconds(60));
        Map<String, String> sorted = new TreeMap<>();
        found.forEach((where, committed) -> sorted.put(where.toString(), committed.offset() + " " + committed.metadata()));
        System.out.println(sorted);
        System.out.println(RemoteClusterUtils.upstreamClusters(settings));
        System.out.println(RemoteClusterUtils.replicationHops(settings, arguments[1]));
        try (MirrorClient client = new MirrorClient(settings)) {
            System.out.println(client.remoteTopics(arguments[1]).stream().sorted().toList());
        }
    }
}
