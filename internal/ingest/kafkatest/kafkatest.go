// Package kafkatest starts a real Apache Kafka broker for tests and benchmarks:
// one process in KRaft mode on loopback. What it is made of is fetched once
// from Maven Central into the user's cache folder.
package kafkatest

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// pom says which Kafka, and what it runs with.
//
//go:embed pom.xml
var pom []byte

// startTimeout is for a JVM to start, on a machine that does other things too.
const startTimeout = time.Minute

// Broker is a broker with its folder. It is used by one goroutine at a time.
type Broker struct {
	jars    string
	dir     string
	address string
	process *exec.Cmd
}

// Open fetches what a broker is made of, where this machine has it not, and
// starts one on an empty folder.
func Open(dir string) (*Broker, error) {
	jars, err := fetch()
	if err != nil {
		return nil, err
	}
	b := &Broker{jars: jars, dir: dir}
	client, controller, err := freePorts()
	if err != nil {
		return nil, err
	}
	b.address = fmt.Sprintf("127.0.0.1:%d", client)
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
`, client, controller, filepath.Join(dir, "log"))
	if err := os.WriteFile(b.properties(), []byte(properties), 0o600); err != nil {
		return nil, err
	}
	format := b.java("kafka.tools.StorageTool", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qg", "-c", b.properties())
	if out, err := format.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("the broker's folder cannot be prepared: %w\n%s", err, out)
	}
	return b, b.Start()
}

// Address is where the broker listens, as 127.0.0.1:port.
func (b *Broker) Address() string { return b.address }

func (b *Broker) properties() string { return filepath.Join(b.dir, "server.properties") }

func (b *Broker) java(class string, arguments ...string) *exec.Cmd {
	return exec.Command("java", append([]string{"-Xmx512m", "-cp", filepath.Join(b.jars, "*"), class}, arguments...)...)
}

// Start starts the broker, also again after Kill, and waits until it listens.
func (b *Broker) Start() error {
	process := b.java("kafka.Kafka", b.properties())
	var out bytes.Buffer
	process.Stdout, process.Stderr = &out, &out
	if err := process.Start(); err != nil {
		return err
	}
	b.process = process
	for deadline := time.Now().Add(startTimeout); ; time.Sleep(50 * time.Millisecond) {
		connection, err := net.Dial("tcp", b.address)
		if err == nil {
			return connection.Close()
		}
		if time.Now().After(deadline) {
			b.Kill()
			return fmt.Errorf("the broker does not start: %w\n%s", err, &out)
		}
	}
}

// Kill ends the broker at once, as SIGKILL does; its folder stays.
func (b *Broker) Kill() {
	if b.process != nil {
		_ = b.process.Process.Kill()
		_ = b.process.Wait()
		b.process = nil
	}
}

// Produce sends lines to a topic by Kafka's own console producer.
func (b *Broker) Produce(topic string, lines ...string) error {
	producer := b.java("org.apache.kafka.tools.ConsoleProducer", "--bootstrap-server", b.address, "--topic", topic)
	producer.Stdin = strings.NewReader(strings.Join(lines, "\n") + "\n")
	if out, err := producer.CombinedOutput(); err != nil {
		return fmt.Errorf("the console producer failed: %w\n%s", err, out)
	}
	return nil
}

// fetch returns the folder that holds the jars of pom.xml, which Maven fetches
// when it is not there.
func fetch() (jars string, err error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	jars = filepath.Join(cache, "tidemark", fmt.Sprintf("kafka-%x", sha256.Sum256(pom))[:18])
	if _, err := os.Stat(jars); err == nil {
		return jars, nil
	}
	for command, debianPackage := range map[string]string{"java": "default-jre-headless", "mvn": "maven"} {
		if err := install(command, debianPackage); err != nil {
			return "", err
		}
	}
	building, err := os.MkdirTemp("", "tidemark-kafka-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(building) }()
	project := filepath.Join(building, "pom.xml")
	if err := os.WriteFile(project, pom, 0o600); err != nil {
		return "", err
	}
	fetching := jars + ".fetching"
	if err := os.RemoveAll(fetching); err != nil {
		return "", err
	}
	copying := exec.Command("mvn", "-q", "-B", "-f", project,
		"dependency:copy-dependencies", "-DincludeScope=runtime", "-DoutputDirectory="+fetching)
	if out, err := copying.CombinedOutput(); err != nil {
		return "", fmt.Errorf("a Kafka broker cannot be fetched from Maven Central (it needs Java 17 and Maven): %w\n%s", err, out)
	}
	return jars, os.Rename(fetching, jars)
}

// install installs a Debian package where a command of it is missing.
func install(command, debianPackage string) error {
	if _, err := exec.LookPath(command); err == nil {
		return nil
	}
	out, err := exec.Command("sh", "-c", "apt-get update && apt-get install --yes --no-install-recommends "+debianPackage).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s is missing, and Debian's package %s cannot be installed: %w\n%s", command, debianPackage, err, out)
	}
	return nil
}

// freePorts are two ports of loopback that nobody listens on.
func freePorts() (first, second int, err error) {
	var ports [2]int
	for i := range ports {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return 0, 0, err
		}
		defer func() { _ = listener.Close() }()
		ports[i] = listener.Addr().(*net.TCPAddr).Port
	}
	return ports[0], ports[1], nil
}
