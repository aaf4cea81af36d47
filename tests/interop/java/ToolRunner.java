import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Kafka's command line tools one after the other in one Java process, because each start of Java takes a second.
 *
 * <p>Each line of standard input is a class and its arguments, with tabs between them. What the tool prints goes to
 * standard output, and after it a line of the character with code 1 and the exit code.
 */
public class ToolRunner {
    /** Ends a tool where it would end the process. */
    private static final class Ended extends RuntimeException {
        private static final long serialVersionUID = 1;

        Ended() {
            super(null, null, false, false);
        }
    }

    private static Integer exitCode;

    public static void main(String[] ignored) throws IOException {
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        System.setOut(out);
        System.setErr(out);
        Exit.setExitProcedure((code, message) -> {
            if (exitCode == null) {  // some tools catch what ends them, and would end again
                exitCode = code;
            }
            throw new Ended();
        });
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split("\t", -1);
            String[] arguments = new String[words.length - 1];
            System.arraycopy(words, 1, arguments, 0, arguments.length);
            exitCode = null;
            run(words[0], arguments);
            out.println("\n\u0001" + (exitCode == null ? 0 : exitCode));
            out.flush();
        }
    }

    private static void run(String tool, String[] arguments) {
        try {
            Class.forName(tool).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (InvocationTargetException thrown) {
            if (!(thrown.getCause() instanceof Ended)) {
                exitCode = 1;
                thrown.getCause().printStackTrace();
            }
        } catch (ReflectiveOperationException missing) {
            exitCode = 1;
            missing.printStackTrace();
        }
    }
}
