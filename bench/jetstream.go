package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// openJetStream starts a NATS server in this process, with file storage, and
// connects to it without a socket.
func openJetStream(syncAlways bool, window int) (jetstream.JetStream, func(), error) {
	dir, err := os.MkdirTemp("", "jetstream-bench-")
	if err != nil {
		return nil, nil, err
	}
	ns, err := server.NewServer(&server.Options{
		JetStream: true, StoreDir: dir, DontListen: true, NoLog: true, NoSigs: true, SyncAlways: syncAlways,
	})
	if err != nil {
		return nil, nil, err
	}
	go ns.Start()
	if !ns.ReadyForConnections(10 * time.Second) {
		return nil, nil, fmt.Errorf("the NATS server did not start")
	}
	nc, err := nats.Connect("", nats.InProcessServer(ns))
	if err != nil {
		return nil, nil, err
	}
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(window))
	if err != nil {
		return nil, nil, err
	}
	_, err = js.CreateStream(context.Background(), jetstream.StreamConfig{
		Name: "events", Subjects: []string{"events"}, Storage: jetstream.FileStorage,
	})
	return js, func() {
		nc.Close()
		ns.Shutdown()
		ns.WaitForShutdown()
		_ = os.RemoveAll(dir)
	}, err
}
