package ingest

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/session"
	"github.com/tidemarkdb/tidemark/internal/store"
)

const (
	// sessionTimeout is after how long without a sign of life the broker gives
	// a member's partitions to another: the least that a broker allows unless
	// it is configured otherwise, so that a dead node is replaced soon.
	sessionTimeout = 6 * time.Second
	// metadataAge is within which time a topic that is created, and a
	// partition that is added, are found.
	metadataAge = 5 * time.Second
	// maxFetchBytes bounds what a member holds in memory.
	maxFetchBytes = 16 << 20
)

// kafkaOptions are those of a declaration's client.
func kafkaOptions(declared *store.Consumer) ([]kgo.Opt, error) {
	options := []kgo.Opt{
		kgo.SeedBrokers(declared.Brokers...),
		kgo.ClientID("tidemark"),
		kgo.ConsumerGroup(declared.Group),
		kgo.ConsumeTopics(declared.From),
		kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.FetchMaxBytes(maxFetchBytes),
		kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(),
		kgo.SessionTimeout(sessionTimeout),
		kgo.HeartbeatInterval(sessionTimeout / 3),
		kgo.MetadataMaxAge(metadataAge),
		kgo.MetadataMinAge(time.Second),
	}
	settings := declared.Settings
	if settings[session.SettingTLS] == "true" {
		config, err := tlsConfig(settings)
		if err != nil {
			return nil, err
		}
		options = append(options, kgo.DialTLSConfig(config))
	}
	if settings[session.SettingSASLMechanism] != "" {
		mechanism, err := saslMechanism(settings)
		if err != nil {
			return nil, err
		}
		options = append(options, kgo.SASL(mechanism))
	}
	return options, nil
}

func tlsConfig(settings map[string]string) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: settings[session.SettingTLSServer]}
	if name := settings[session.SettingTLSAuthorities]; name != "" {
		authorities, err := secret(name)
		if err != nil {
			return nil, err
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM([]byte(authorities)) {
			return nil, fault.New(fault.InvalidClause, "%s%s holds no certificate in PEM", session.SecretPrefix, name)
		}
	}
	if name := settings[session.SettingTLSCertificate]; name != "" {
		certificate, err := secret(name)
		if err != nil {
			return nil, err
		}
		key, err := secret(settings[session.SettingTLSKey])
		if err != nil {
			return nil, err
		}
		pair, err := tls.X509KeyPair([]byte(certificate), []byte(key))
		if err != nil {
			// The error may quote what it could not read.
			return nil, fault.New(fault.InvalidClause, "the client's certificate and key are no pair in PEM")
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

func saslMechanism(settings map[string]string) (sasl.Mechanism, error) {
	password, err := secret(settings[session.SettingSASLPassword])
	if err != nil {
		return nil, err
	}
	user := settings[session.SettingSASLUser]
	switch settings[session.SettingSASLMechanism] {
	case "SCRAM-SHA-256":
		return scram.Auth{User: user, Pass: password}.AsSha256Mechanism(), nil
	case "SCRAM-SHA-512":
		return scram.Auth{User: user, Pass: password}.AsSha512Mechanism(), nil
	}
	return plain.Auth{User: user, Pass: password}.AsMechanism(), nil
}

// secret is the node's setting that a declaration refers to.
func secret(name string) (string, error) {
	held, ok := os.LookupEnv(session.SecretPrefix + name)
	if !ok {
		return "", fault.New(fault.InvalidClause, "the environment variable %s%s, which the declaration refers to, is not set on this node", session.SecretPrefix, name)
	}
	return held, nil
}

// kafkaErrors keeps what the client meets where nobody asked it anything, so
// that a broker which cannot be reached shows in the report.
type kafkaErrors struct{ *consumer }

var (
	_ kgo.HookBrokerConnect    = kafkaErrors{}
	_ kgo.HookGroupManageError = kafkaErrors{}
)

// OnBrokerConnect keeps why a connection could not be made.
func (k kafkaErrors) OnBrokerConnect(broker kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	if err != nil && !errors.Is(err, context.Canceled) {
		k.failed("", fmt.Errorf("broker %s:%d: %w", broker.Host, broker.Port, err))
	}
}

// OnGroupManageError keeps why this member is in no group now.
func (k kafkaErrors) OnGroupManageError(err error) {
	if !errors.Is(err, context.Canceled) {
		k.failed("", fmt.Errorf("group '%s': %w", k.declared.Group, err))
	}
}

// tellBroker commits offsets at the broker and waits for its answer.
func (k *kafkaSource) tellBroker(ctx context.Context, offsets map[int32]kgo.EpochOffset) error {
	var failed error
	k.client.CommitOffsetsSync(ctx, map[string]map[int32]kgo.EpochOffset{k.declared.From: offsets},
		func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, response *kmsg.OffsetCommitResponse, err error) {
			if err != nil {
				failed = err
				return
			}
			for _, topic := range response.Topics {
				for _, partition := range topic.Partitions {
					if err := kerr.ErrorForCode(partition.ErrorCode); err != nil {
						failed = fmt.Errorf("partition %d: %w", partition.Partition, err)
					}
				}
			}
		})
	return failed
}
