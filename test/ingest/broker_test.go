package ingest

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// broker is an Apache Kafka broker in KRaft mode, one process on loopback.
type broker struct {
	*testing.T
	jars    string
	dir     string
	address string
	process *exec.Cmd
}

// startBroker fetches what a broker is made of, once for this machine, and
// starts one on an empty folder.
func startBroker(t *testing.T) *broker {
	t.Helper()
	b := &broker{T: t, jars: fetchKafka(t), dir: t.TempDir()}
	ports := freePorts(t, 2)
	b.address = fmt.Sprintf("127.0.0.1:%d", ports[0])
	properties := fmt.Sprintf(`
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:%[2]d
listeners=PLAINTEXT://127.0.0.1:%[1]d,CONTROLLER://127.0.0.1:%[2]d
advertised.listeners=PLAINTEXT://127.0.0.1:%[1]d
controller.listener.names=CONTROLLER
log.dirs=%[3]s
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false
`, ports[0], ports[1], filepath.Join(b.dir, "log"))
	if err := os.WriteFile(b.properties(), []byte(properties), 0o600); err != nil {
		t.Fatal(err)
	}
	format := b.java("kafka.tools.StorageTool", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qg", "-c", b.properties())
	if out, err := format.CombinedOutput(); err != nil {
		t.Fatalf("the broker's folder cannot be prepared: %v\n%s", err, out)
	}
	b.start()
	t.Cleanup(b.kill)
	return b
}

func (b *broker) properties() string { return filepath.Join(b.dir, "server.properties") }

func (b *broker) java(class string, arguments ...string) *exec.Cmd {
	return exec.Command("java", append([]string{"-Xmx512m", "-cp", filepath.Join(b.jars, "*"), class}, arguments...)...)
}

// start starts the broker and waits until it answers.
func (b *broker) start() {
	b.Helper()
	b.process = b.java("kafka.Kafka", b.properties())
	var out bytes.Buffer
	b.process.Stdout, b.process.Stderr = &out, &out
	if err := b.process.Start(); err != nil {
		b.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		connection, err := net.Dial("tcp", b.address)
		if err == nil {
			_ = connection.Close()
			return
		}
		if time.Now().After(deadline) {
			b.kill()
			b.Fatalf("the broker does not start: %v\n%s", err, &out)
		}
	}
}

// kill ends the broker at once.
func (b *broker) kill() {
	if b.process != nil {
		_ = b.process.Process.Signal(syscall.SIGKILL)
		_ = b.process.Wait()
		b.process = nil
	}
}

// produce runs Kafka's own console producer.
func (b *broker) produce(topic string, lines ...string) {
	b.Helper()
	producer := b.java("org.apache.kafka.tools.ConsoleProducer", "--bootstrap-server", b.address, "--topic", topic)
	producer.Stdin = strings.NewReader(strings.Join(lines, "\n") + "\n")
	if out, err := producer.CombinedOutput(); err != nil {
		b.Fatalf("the console producer failed: %v\n%s", err, out)
	}
}

// fetchKafka returns the folder that holds the jars of pom.xml, which Maven
// fetches when it is not there.
func fetchKafka(t *testing.T) string {
	t.Helper()
	pom, err := os.ReadFile(filepath.Join("kafka", "pom.xml"))
	if err != nil {
		t.Fatal(err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	jars := filepath.Join(cache, "tidemark", fmt.Sprintf("kafka-%x", sha256.Sum256(pom))[:18])
	if _, err := os.Stat(jars); err == nil {
		return jars
	}
	fetching := jars + ".fetching"
	if err := os.RemoveAll(fetching); err != nil {
		t.Fatal(err)
	}
	install(t, "java", "default-jre-headless")
	install(t, "mvn", "maven")
	fetch := exec.Command("mvn", "-q", "-B", "-f", filepath.Join("kafka", "pom.xml"),
		"dependency:copy-dependencies", "-DincludeScope=runtime", "-DoutputDirectory="+fetching)
	if out, err := fetch.CombinedOutput(); err != nil {
		t.Fatalf("a Kafka broker cannot be fetched from Maven Central (this test needs Java 17 and Maven): %v\n%s", err, out)
	}
	if err := os.Rename(fetching, jars); err != nil {
		t.Fatal(err)
	}
	return jars
}

// install installs a Debian package where a command of it is missing.
func install(t *testing.T, command, debianPackage string) {
	t.Helper()
	if _, err := exec.LookPath(command); err == nil {
		return
	}
	out, err := exec.Command("sh", "-c", "apt-get update && apt-get install --yes --no-install-recommends "+debianPackage).CombinedOutput()
	if err != nil {
		t.Fatalf("this test needs %s, and Debian's package %s cannot be installed: %v\n%s", command, debianPackage, err, out)
	}
}

func freePorts(t *testing.T, n int) []int {
	t.Helper()
	var ports []int
	for range n {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = listener.Close() }()
		ports = append(ports, listener.Addr().(*net.TCPAddr).Port)
	}
	return ports
}
