package node

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/internal/nodetest"
)

func TestSettingsComeFromFlagsEnvironmentAndFileInThisOrder(t *testing.T) {
	file := filepath.Join(t.TempDir(), "node.yaml")
	write(t, file, "statements: 3\nanswer-rows: 30\nwaiting-reads: 300\nstatement-time: 7s\norigin: [https://a.example, https://b.example]\n")
	t.Setenv("TIDEMARK_ANSWER_ROWS", "20")
	t.Setenv("TIDEMARK_WAITING_READS", "200")
	out, errors, status := nodetest.Run(t, "", "serve", "--config", file, "--waiting-reads", "100", "--print-config")
	if status != 0 {
		t.Fatal(errors)
	}
	for _, line := range []string{"statements: 3", "answer-rows: 20", "waiting-reads: 100", "statement-time: 7s", "listen: 127.0.0.1:7420", "    - https://a.example\n    - https://b.example"} {
		if !strings.Contains(out, "\n"+line+"\n") && !strings.Contains(out, ":\n"+line+"\n") {
			t.Errorf("--print-config lacks %q:\n%s", line, out)
		}
	}
	// What is printed is a file that says the same.
	again := filepath.Join(t.TempDir(), "again.yaml")
	write(t, again, out)
	_ = os.Unsetenv("TIDEMARK_ANSWER_ROWS")
	_ = os.Unsetenv("TIDEMARK_WAITING_READS")
	if printed, errors, _ := nodetest.Run(t, "", "serve", "--config", again, "--print-config"); printed != out {
		t.Errorf("the file that was printed gives other settings: %s\n%s", errors, printed)
	}
}

func TestWrongSettingsAreRefusedByName(t *testing.T) {
	file := filepath.Join(t.TempDir(), "node.yaml")
	for content, wanted := range map[string]string{
		"statement: 3\n":            `no "statement"`,
		"statements: many\n":        "statements",
		"statements: {a: 1}\n":      "statements",
		"- a\n":                     "do not parse",
		"print-config: true\n":      `no "print-config"`,
		"postgres: a\ndata: b\n":    "--postgres",
		"listen: 0.0.0.0:0\n":       "--allow-anonymous",
		"listen: nowhere\n":         "--listen",
		"tls-cert: a\n":             "--tls-key",
		"log-format: xml\n":         "log-format",
		"tls-cert: a\ntls-key: b\n": "certificate",
		"origin: not an origin\nlisten: 127.0.0.1:0\n": "origin",
		"shutdown-time: a long time\n":                 "shutdown-time",
	} {
		write(t, file, content)
		_, errors, status := nodetest.Run(t, "", "serve", "--config", file)
		if status == 0 || !strings.Contains(errors, wanted) {
			t.Errorf("%s: exits with %d and says %s", content, status, errors)
		}
	}
}

func TestPasswordsAreNotPrinted(t *testing.T) {
	for _, address := range []string{"postgres://u:hidden@host/db", "postgres://host/db?user=u&password=hidden", "host=h password=hidden user=u", "host=h password='hid den' user=u"} {
		out, _, _ := nodetest.Run(t, "", "serve", "--postgres", address, "--print-config")
		if strings.Contains(out, "hid") || strings.Contains(out, "xxxxx") || !strings.Contains(out, "Its password is left out here") {
			t.Errorf("%s is printed as %s", address, out)
		}
	}
}

func TestAStoreWithoutUsersSaysSoLoudly(t *testing.T) {
	for _, p := range []*process{start(t), start(t, "--listen", "0.0.0.0:0", "--allow-anonymous")} {
		p.logs("THE STORE HAS NO OWNER")
	}
}

func TestTheCertificateIsReadAgainAtAHangup(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	certify(t, cert, key, 1)
	p := start(t, "--tls-cert", cert, "--tls-key", key)
	if serial := serialOf(t, p.URL); serial != 1 {
		t.Fatalf("the node shows certificate %d", serial)
	}
	_, errors, _ := nodetest.Run(t, "INFO FOR STORE", "run", "--url", "ws"+strings.TrimPrefix(p.URL, "https"), "-")
	if !strings.Contains(errors, "speaks TLS; its URL begins with wss://") {
		t.Errorf("who comes without TLS is told %s", errors)
	}
	certify(t, cert, key, 2)
	p.Signal(syscall.SIGHUP)
	nodetest.Eventually(t, soon, func() bool { return serialOf(t, p.URL) == 2 }, "the new certificate is shown")
	// One that cannot be used leaves the old one, and the node as it was.
	other := filepath.Join(dir, "other.pem")
	certify(t, other, filepath.Join(dir, "other-key.pem"), 3)
	read := func(file string) string {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return string(content)
	}
	good := read(cert)
	for i, broken := range []string{"no certificate", "", good[:len(good)/2], read(other)} {
		write(t, cert, broken)
		p.Signal(syscall.SIGHUP)
		nodetest.Eventually(t, soon, func() bool { return strings.Count(p.Stderr.String(), "stays the old one") == i+1 }, "the node says that %q is no certificate of the key's", broken)
		if serial := serialOf(t, p.URL); serial != 2 {
			t.Fatalf("the node shows certificate %d", serial)
		}
	}
	if err := os.Remove(cert); err != nil {
		t.Fatal(err)
	}
	p.Signal(syscall.SIGHUP)
	certify(t, cert, key, 4)
	p.Signal(syscall.SIGHUP)
	nodetest.Eventually(t, soon, func() bool { return serialOf(t, p.URL) == 4 }, "a good certificate is shown after broken ones")
}

// logs waits until the node's log holds a text: it comes by a pipe of its own,
// maybe after what the node does.
func (p *process) logs(text string) {
	p.Helper()
	nodetest.Eventually(p, soon, func() bool { return strings.Contains(p.Stderr.String(), text) }, "the log holds %s: %s", text, p.Stderr)
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// certify writes a certificate that signs itself.
func certify(t *testing.T, certFile, keyFile string, serial int64) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "localhost"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	write(t, certFile, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	write(t, keyFile, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded})))
}

// serialOf asks a node over TLS and returns the number of its certificate.
func serialOf(t *testing.T, url string) int64 {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport}).Get(url + "/health")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	_, _ = io.Copy(io.Discard, response.Body)
	return response.TLS.PeerCertificates[0].SerialNumber.Int64()
}
