// Runs client-go's leader election on one Lease, for the test that it and ours exclude each other.
//
// One line per event goes to standard output: "leading", "lost", "new leader X". SIGTERM ends it,
// and gives the lease back when --release-on-cancel is set.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "file to reach the API server with")
	namespace := flag.String("namespace", "kube-system", "namespace of the Lease")
	name := flag.String("name", "cloud-controller-manager", "name of the Lease")
	identity := flag.String("identity", "go", "who we are")
	duration := flag.Duration("lease-duration", 15*time.Second, "as --leader-elect-lease-duration")
	deadline := flag.Duration("renew-deadline", 10*time.Second, "as --leader-elect-renew-deadline")
	retry := flag.Duration("retry-period", 2*time.Second, "as --leader-elect-retry-period")
	release := flag.Bool("release-on-cancel", false, "give the lease back on SIGTERM")
	version := flag.Bool("version", false, "print the version of client-go and end")
	flag.Parse()
	if *version {
		fmt.Println("client-go", clientGoVersion())
		return
	}

	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	config.Timeout = max(time.Second, *deadline/2)
	client := kubernetes.NewForConfigOrDie(config)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
		Name: *name,
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: *namespace, Name: *name},
			Client:     client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: *identity},
		},
		LeaseDuration:   *duration,
		RenewDeadline:   *deadline,
		RetryPeriod:     *retry,
		ReleaseOnCancel: *release,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { fmt.Println("leading") },
			OnStoppedLeading: func() { fmt.Println("lost") },
			OnNewLeader:      func(leader string) { fmt.Println("new leader", leader) },
		},
	})
}

// The version that go.mod pins, as the linker wrote it into this program.
func clientGoVersion() string {
	info, ok := debug.ReadBuildInfo()
	if ok {
		for _, module := range info.Deps {
			if module.Path == "k8s.io/client-go" {
				return module.Version
			}
		}
	}
	return "unknown"
}
