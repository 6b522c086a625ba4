// cert-manager as the tests need it: the controllers that issue certificates of Issuers of the kinds selfSigned and CA, without the
// webhooks. The resources themselves are checked by the API server, which has their definitions.
//
//	cert-manager KUBECONFIG NAMESPACE
//
// It works in that namespace only, and ends when its standard input does.
package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/cert-manager/cert-manager/pkg/controller"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/approver"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/ca"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/selfsigned"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/issuing"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/keymanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/readiness"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/requestmanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/revisionmanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/trigger"
	_ "github.com/cert-manager/cert-manager/pkg/controller/issuers"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/ca"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/selfsigned"
	"golang.org/x/sync/errgroup"
)

// As in cert-manager's own program.
const workers = 5

func main() {
	within, end := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		end()
	}()
	if err := run(within, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(within context.Context, arguments []string) error {
	if len(arguments) != 2 {
		return fmt.Errorf("usage: cert-manager KUBECONFIG NAMESPACE")
	}
	group, within := errgroup.WithContext(within)
	factory, err := controller.NewContextFactory(within, controller.ContextOptions{
		Kubeconfig:         arguments[0],
		Namespace:          arguments[1],
		KubernetesAPIQPS:   20,
		KubernetesAPIBurst: 50,
		IssuerOptions:      controller.IssuerOptions{ClusterResourceNamespace: arguments[1]},
	})
	if err != nil {
		return err
	}
	shared, err := factory.Build()
	if err != nil {
		return err
	}
	for name, construct := range controller.Known() {
		constructed, err := construct(factory)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		group.Go(func() error { return constructed.Run(workers, within) })
	}
	shared.SharedInformerFactory.Start(within.Done())
	shared.KubeSharedInformerFactory.Start(within.Done())
	shared.HTTP01ResourceMetadataInformersFactory.Start(within.Done())
	return group.Wait()
}
