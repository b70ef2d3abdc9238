import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.flink.api.common.RuntimeExecutionMode;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;

/** Small batch jobs that nobody counts, then, once the file "go" is there, some that are counted. */
public class ManyJobs {
    static void until(Path file) throws Exception {
        while (!Files.exists(file)) {
            Thread.sleep(20);
        }
    }

    public static void main(String[] args) throws Exception {
        Path place = Path.of(args[0]);
        int uncounted = Integer.parseInt(args[1]);
        int counted = Integer.parseInt(args[2]);
        StreamExecutionEnvironment env = StreamExecutionEnvironment.getExecutionEnvironment();
        env.setRuntimeMode(RuntimeExecutionMode.BATCH);
        env.setParallelism(1);
        for (int number = 0; number < uncounted + counted; number++) {
            if (number == uncounted) {
                Files.writeString(place.resolve("half.txt"), "half\n");
                until(place.resolve("go"));
            }
            env.fromSequence(1, 1).sinkTo(new DiscardingSink<>());
            env.execute("job " + number);
        }
        Files.writeString(place.resolve("whole.txt"), "whole\n");
        until(place.resolve("end"));
    }
}
