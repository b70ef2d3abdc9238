import java.io.FileOutputStream;
import java.nio.charset.StandardCharsets;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.functions.RichMapFunction;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.connector.source.util.ratelimit.RateLimiterStrategy;
import org.apache.flink.connector.datagen.source.DataGeneratorSource;
import org.apache.flink.connector.datagen.source.GeneratorFunction;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;

/** 1000 numbers a second, counted by key in checkpointed state; every twentieth is noted as a step. */
public class StreamJob {
    public static class Count extends RichMapFunction<Long, Long> {
        private final String notes;
        private transient ValueState<Long> count;
        private transient FileOutputStream out;
        private transient long opened;

        Count(String notes) {
            this.notes = notes;
        }

        @Override
        public void open(OpenContext context) throws Exception {
            count = getRuntimeContext().getState(new ValueStateDescriptor<>("count", Types.LONG));
            out = new FileOutputStream(notes, true);
            opened = System.currentTimeMillis();
        }

        @Override
        public Long map(Long number) throws Exception {
            Long before = count.value();
            count.update(before == null ? 1L : before + 1);
            if (number % 20 == 0) {
                long now = System.currentTimeMillis();
                String line = String.format(
                        "{\"time\": %d.%03d, \"step\": %d, \"attempt\": %d}%n",
                        now / 1000, now % 1000,
                        number / 20 + 1, opened);
                out.write(line.getBytes(StandardCharsets.UTF_8));
            }
            return number;
        }

        @Override
        public void close() throws Exception {
            if (out != null) {
                out.close();
            }
        }
    }

    public static void main(String[] args) throws Exception {
        StreamExecutionEnvironment env = StreamExecutionEnvironment.getExecutionEnvironment();
        GeneratorFunction<Long, Long> same = number -> number;
        env.fromSource(
                        new DataGeneratorSource<>(
                                same, Long.MAX_VALUE, RateLimiterStrategy.perSecond(1000), Types.LONG),
                        WatermarkStrategy.noWatermarks(),
                        "numbers")
                .keyBy(number -> number % 100)
                .map(new Count(args[0]))
                .sinkTo(new DiscardingSink<>());
        env.execute("steps");
    }
}
