package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os/signal"
	"syscall"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
)

// How long etcd may take until it serves.
const etcdStartsWithin = 60 * time.Second

// serveEtcd runs a single member in the directory until SIGTERM or SIGINT, and prints where it serves as
// "ready: HOST:PORT". A member that is started again on what it had needs the same address, for the sake of its clients.
func serveEtcd(arguments []string) error {
	if len(arguments) < 1 || len(arguments) > 2 {
		return errors.New(usage)
	}
	address := "127.0.0.1:0"
	if len(arguments) == 2 {
		address = arguments[1]
	}
	config := embed.NewConfig()
	config.Dir = arguments[0]
	config.LogLevel = "warn"
	// What it keeps is worth nothing after the run: nobody has to wait for the disk.
	config.UnsafeNoFsync = true
	// Only etcd's own command line has a default for this: without one, every request is logged as slow.
	config.WarningUnaryRequestDuration = embed.DefaultWarningUnaryRequestDuration
	config.ListenClientUrls = []url.URL{{Scheme: "http", Host: address}}
	config.AdvertiseClientUrls = config.ListenClientUrls
	config.ListenPeerUrls = []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	config.AdvertisePeerUrls = config.ListenPeerUrls
	config.InitialCluster = config.InitialClusterFromName(config.Name)

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	etcd, err := embed.StartEtcd(config)
	if err != nil {
		return err
	}
	defer etcd.Close()
	select {
	case <-etcd.Server.ReadyNotify():
	case <-ctx.Done():
		return nil
	case err := <-etcd.Err():
		return err
	case <-time.After(etcdStartsWithin):
		return fmt.Errorf("etcd does not serve within %s", etcdStartsWithin)
	}
	fmt.Printf("ready: %s\n", etcd.Clients[0].Addr())
	select {
	case <-ctx.Done():
		return nil
	case err := <-etcd.Err():
		return err
	}
}
