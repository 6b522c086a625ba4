// The control plane of Kubernetes as one program: the real etcd, kube-apiserver, kube-controller-manager and
// kube-scheduler, each a subcommand and a process of its own, so that a test can kill one of them.
//
//	kubernetes-server etcd DIRECTORY [HOST:PORT]
//	kubernetes-server kube-apiserver FLAGS…
//	kubernetes-server kube-controller-manager FLAGS…
//	kubernetes-server kube-scheduler FLAGS…
//	kubernetes-server service-account-key FILE
//
// There is no kubelet and no container runtime: the scenarios' harness plays them. What serves ends as soon as its
// standard input does, if END_WITH_STDIN is set: whoever started it holds the other end, so it outlives nobody, not even
// one that was killed.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"k8s.io/client-go/util/keyutil"
	"k8s.io/component-base/cli"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

const usage = "usage: kubernetes-server etcd | kube-apiserver | kube-controller-manager | kube-scheduler | " +
	"service-account-key …"

func main() {
	if len(os.Args) < 2 {
		fail(errors.New(usage))
	}
	if os.Getenv("END_WITH_STDIN") != "" {
		go endWithStandardInput()
	}
	// Kubernetes' commands read the words behind their own name.
	command := os.Args[1]
	os.Args = os.Args[1:]
	switch command {
	case "etcd":
		fail(serveEtcd(os.Args[1:]))
	case "kube-apiserver":
		os.Exit(cli.Run(apiserver.NewAPIServerCommand()))
	case "kube-controller-manager":
		os.Exit(cli.Run(controllers.NewControllerManagerCommand()))
	case "kube-scheduler":
		os.Exit(cli.Run(scheduler.NewSchedulerCommand()))
	case "service-account-key":
		fail(writeKey(os.Args[1:]))
	default:
		fail(fmt.Errorf("unknown command %s\n%s", command, usage))
	}
}

// writeKey makes the key that service account tokens are signed with.
func writeKey(arguments []string) error {
	if len(arguments) != 1 {
		return errors.New(usage)
	}
	pem, err := keyutil.MakeEllipticPrivateKeyPEM()
	if err != nil {
		return err
	}
	return os.WriteFile(arguments[0], pem, 0o600)
}

// endWithStandardInput ends the process at once: what it keeps is worth nothing without the test.
func endWithStandardInput() {
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(3)
}

// fail ends the process, with status 1 if there is an error.
func fail(err error) {
	if err == nil {
		os.Exit(0)
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
