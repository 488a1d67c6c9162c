package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/redis/go-redis/v9"

	client "github.com/tidemarkdb/tidemark/client/go"
	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/value"
)

// wireBenchmarks measure a node over TCP on loopback, as a process of its own,
// with its syncs before every answer: appends pipelined over one connection
// and over 64, READ in pages and FOLLOW. The references speak TCP too:
// JetStream's asynchronous publish with its default sync interval, its ordered
// consumer, and Redis XADD in pipelines of 64 with appendfsync always.
func wireBenchmarks() []benchmark {
	return []benchmark{
		{
			name: "wire: append 128 B, 1 connection, 4,096 outstanding, beside JetStream async, no sync", unit: "messages/s",
			tidemark:  func(d time.Duration) (result, error) { return wireAppend(1, 4096, d) },
			reference: func(d time.Duration) (result, error) { return wireJetStream(1, 4096, d) },
		},
		{
			name: "wire: append 128 B, 64 connections, 64 outstanding each, beside JetStream async, no sync", unit: "messages/s",
			tidemark:  func(d time.Duration) (result, error) { return wireAppend(64, 64, d) },
			reference: func(d time.Duration) (result, error) { return wireJetStream(64, 64, d) },
		},
		{
			name: "wire: append 128 B, 1 connection, 4,096 outstanding, beside redis XADD, pipelines of 64, fsync always", unit: "messages/s",
			tidemark:  func(d time.Duration) (result, error) { return wireAppend(1, 4096, d) },
			reference: wireRedis,
		},
		{
			name: "wire: READ in pages of 1,000, beside JetStream's ordered consumer", unit: "messages/s",
			tidemark: wireRead, reference: wireOrderedConsumer,
		},
		{
			name: "wire: FOLLOW, beside JetStream's ordered consumer", unit: "messages/s",
			tidemark: wireFollow, reference: wireOrderedConsumer,
		},
	}
}

// wireMessages is how many messages are read over the wire.
const wireMessages = 200_000

// startNode builds and starts tidemark serve on a folder with a topic events,
// and returns where it listens.
func startNode() (url string, cleanup func(), err error) {
	dir, err := os.MkdirTemp("", "tidemark-bench-")
	if err != nil {
		return "", nil, err
	}
	url, stop, err := startNodeOn("--data", dir)
	return url, func() {
		stop()
		_ = os.RemoveAll(dir)
	}, err
}

// startNodeOn is startNode with the store that the arguments name.
func startNodeOn(store ...string) (url string, cleanup func(), err error) {
	dir, err := os.MkdirTemp("", "tidemark-bench-")
	if err != nil {
		return "", nil, err
	}
	cleanup = func() { _ = os.RemoveAll(dir) }
	binary, err := buildTidemark(dir)
	if err != nil {
		return "", cleanup, err
	}
	node, err := startProcess(binary, "listens on ", append([]string{"serve", "--listen", "127.0.0.1:0", "--log-level", "ERROR"}, store...)...)
	if err != nil {
		return "", cleanup, err
	}
	cleanup = func() {
		node.end()
		_ = os.RemoveAll(dir)
	}
	s, err := client.Dial(context.Background(), node.said, client.Options{})
	if err != nil {
		return "", cleanup, err
	}
	defer func() { _ = s.Close() }()
	answers, err := s.Run(context.Background(), "DEFINE NAMESPACE bench; USE NAMESPACE bench; DEFINE DATABASE bench; USE DATABASE bench; DEFINE TOPIC events", nil)
	return node.said, cleanup, firstFailure(answers, err)
}

func firstFailure(answers []client.Answer, err error) error {
	for _, answer := range answers {
		if err == nil && answer.Err != nil {
			err = answer.Err
		}
	}
	return err
}

func dialNode(url string) (*client.Session, error) {
	return client.Dial(context.Background(), url, client.Options{Namespace: "bench", Database: "bench"})
}

// wireAppend appends over a number of connections, each with so many appends
// outstanding.
func wireAppend(connections, outstanding int, d time.Duration) (result, error) {
	url, cleanup, err := startNode()
	if err != nil {
		return result{}, err
	}
	defer cleanup()
	return appendOver(url, connections, outstanding, d)
}

// appendOver is wireAppend to a node that runs.
func appendOver(url string, connections, outstanding int, d time.Duration) (result, error) {
	return overConnections(connections, func() (result, error) {
		topic, closing, err := openRemote(url)
		if err != nil {
			return result{}, err
		}
		defer closing()
		message := eventOf(128)
		return pipelined(outstanding, d, func(done func(error)) error {
			return topic.AppendAsync(context.Background(), message, func(_ client.Message, _ bool, err error) { done(err) })
		})
	})
}

// openRemote opens the topic events of a node.
func openRemote(url string) (*client.Topic, func(), error) {
	store, err := client.Connect(context.Background(), "ws"+strings.TrimPrefix(url, "http"), client.Options{})
	if err != nil {
		return nil, nil, err
	}
	db, err := store.Database(context.Background(), "bench", "bench")
	if err != nil {
		_ = store.Close()
		return nil, nil, err
	}
	return db.Topic("events"), func() { _ = store.Close() }, nil
}

// overConnections runs a measurement over several connections at once and adds
// their rates.
func overConnections(connections int, measure func() (result, error)) (result, error) {
	var all result
	var mu sync.Mutex
	var failure error
	var running sync.WaitGroup
	for range connections {
		running.Go(func() {
			r, err := measure()
			mu.Lock()
			defer mu.Unlock()
			all.perSecond += r.perSecond
			all.latencies = append(all.latencies, r.latencies...)
			if err != nil {
				failure = err
			}
		})
	}
	running.Wait()
	return all, failure
}

// fillNode appends what is then read.
func fillNode(s *client.Session) error {
	params := map[string]value.Value{"v": eventOf(128)}
	calls := make([]*client.Call, 0, wireMessages)
	for range wireMessages {
		calls = append(calls, s.Start("CREATE events = $v", params))
	}
	for _, call := range calls {
		if err := firstFailure(call.Wait(context.Background())); err != nil {
			return err
		}
	}
	return nil
}

// filledNode is a node whose topic holds wireMessages.
func filledNode() (url string, cleanup func(), err error) {
	url, cleanup, err = startNode()
	if err != nil {
		return "", nil, err
	}
	s, err := dialNode(url)
	if err != nil {
		return "", cleanup, err
	}
	defer func() { _ = s.Close() }()
	return url, cleanup, fillNode(s)
}

func wireRead(d time.Duration) (result, error) {
	url, cleanup, err := filledNode()
	if err != nil {
		return result{}, err
	}
	defer cleanup()
	topic, closing, err := openRemote(url)
	if err != nil {
		return result{}, err
	}
	defer closing()
	return readAgain(d, func() (int, error) {
		read := 0
		for {
			page, err := topic.Read(context.Background(), client.ReadOptions{After: uint64(read), Limit: 1000})
			if err != nil || len(page.Messages) == 0 {
				return read, err
			}
			read += len(page.Messages)
		}
	})
}

func wireFollow(d time.Duration) (result, error) {
	url, cleanup, err := filledNode()
	if err != nil {
		return result{}, err
	}
	defer cleanup()
	s, err := dialNode(url)
	if err != nil {
		return result{}, err
	}
	defer func() { _ = s.Close() }()
	return readAgain(d, func() (int, error) {
		following, err := s.Follow(context.Background(), "FOLLOW events AFTER 0", nil, 10_000)
		if err != nil {
			return 0, err
		}
		defer following.Close()
		read := 0
		for read < wireMessages {
			pushed, err := following.Next(context.Background())
			if err != nil {
				return read, err
			}
			read += len(pushed.Messages)
		}
		return read, nil
	})
}

// readAgain reads everything again and again.
func readAgain(d time.Duration, readAll func() (int, error)) (result, error) {
	total, start := 0, time.Now()
	for total == 0 || time.Since(start) < d {
		read, err := readAll()
		if err != nil {
			return result{}, err
		}
		if read != wireMessages {
			return result{}, fault.New(fault.Internal, "read %d messages of %d", read, wireMessages)
		}
		total += read
	}
	return result{perSecond: float64(total) / time.Since(start).Seconds()}, nil
}

// openJetStreamTCP starts a NATS server that listens, with file storage and the
// stream events. syncAlways has it sync before it acknowledges.
func openJetStreamTCP(syncAlways bool) (url string, cleanup func(), err error) {
	dir, err := os.MkdirTemp("", "jetstream-bench-")
	if err != nil {
		return "", nil, err
	}
	ns, err := server.NewServer(&server.Options{JetStream: true, StoreDir: dir, Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true, SyncAlways: syncAlways})
	if err != nil {
		return "", nil, err
	}
	go ns.Start()
	cleanup = func() {
		ns.Shutdown()
		ns.WaitForShutdown()
		_ = os.RemoveAll(dir)
	}
	if !ns.ReadyForConnections(10 * time.Second) {
		return "", cleanup, fmt.Errorf("the NATS server did not start")
	}
	nc, err := nats.Connect(ns.ClientURL())
	if err != nil {
		return "", cleanup, err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return "", cleanup, err
	}
	_, err = js.CreateStream(context.Background(), jetstream.StreamConfig{Name: "events", Subjects: []string{"events"}, Storage: jetstream.FileStorage})
	return ns.ClientURL(), cleanup, err
}

func dialJetStream(url string, window int) (jetstream.JetStream, func(), error) {
	nc, err := nats.Connect(url)
	if err != nil {
		return nil, nil, err
	}
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(window))
	return js, nc.Close, err
}

func wireJetStream(connections, outstanding int, d time.Duration) (result, error) {
	url, cleanup, err := openJetStreamTCP(false)
	if err != nil {
		return result{}, err
	}
	defer cleanup()
	return overConnections(connections, func() (result, error) {
		js, closing, err := dialJetStream(url, outstanding)
		if err != nil {
			return result{}, err
		}
		defer closing()
		return publishAsync(js, outstanding, make([]byte, 128), d)
	})
}

func wireOrderedConsumer(d time.Duration) (result, error) {
	url, cleanup, err := openJetStreamTCP(false)
	if err != nil {
		return result{}, err
	}
	defer cleanup()
	js, closing, err := dialJetStream(url, 4096)
	if err != nil {
		return result{}, err
	}
	defer closing()
	payload := make([]byte, 128)
	for range wireMessages {
		if _, err := js.PublishAsync("events", payload, jetstream.WithStallWait(time.Minute)); err != nil {
			return result{}, err
		}
	}
	<-js.PublishAsyncComplete()
	return readAgain(d, func() (int, error) {
		consumer, err := js.OrderedConsumer(context.Background(), "events", jetstream.OrderedConsumerConfig{})
		if err != nil {
			return 0, err
		}
		var read atomic.Int64
		done := make(chan struct{})
		consuming, err := consumer.Consume(func(jetstream.Msg) {
			if read.Add(1) == wireMessages {
				close(done)
			}
		})
		if err != nil {
			return 0, err
		}
		defer consuming.Stop()
		<-done
		return int(read.Load()), nil
	})
}

// wireRedis adds to a stream of a Redis that syncs every command's log before
// it answers.
func wireRedis(d time.Duration) (result, error) {
	binary, err := exec.LookPath("redis-server")
	if err != nil {
		return result{}, fmt.Errorf("install redis-server (Debian's package) to measure beside it: %w", err)
	}
	dir, err := os.MkdirTemp("", "redis-bench-")
	if err != nil {
		return result{}, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return result{}, err
	}
	address := listener.Addr().String()
	_ = listener.Close()
	_, port, _ := net.SplitHostPort(address)
	redisServer := exec.Command(binary, "--port", port, "--dir", dir, "--appendonly", "yes", "--appendfsync", "always", "--save", "")
	if err := redisServer.Start(); err != nil {
		return result{}, err
	}
	defer func() {
		_ = redisServer.Process.Kill()
		_ = redisServer.Wait()
	}()
	ctx := context.Background()
	db := redis.NewClient(&redis.Options{Addr: address})
	defer func() { _ = db.Close() }()
	for began := time.Now(); db.Ping(ctx).Err() != nil; time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > 10*time.Second {
			return result{}, fmt.Errorf("redis-server does not answer")
		}
	}
	const pipeline = 64
	payload := strings.Repeat("x", 128)
	count, start := 0, time.Now()
	for time.Since(start) < d {
		_, err := db.Pipelined(ctx, func(p redis.Pipeliner) error {
			for range pipeline {
				p.XAdd(ctx, &redis.XAddArgs{Stream: "events", Values: []string{"v", payload}})
			}
			return nil
		})
		if err != nil {
			return result{}, err
		}
		count += pipeline
	}
	return result{perSecond: float64(count) / time.Since(start).Seconds()}, nil
}
