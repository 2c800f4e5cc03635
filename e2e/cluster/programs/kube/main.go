// Command kube is the Kubernetes of the end-to-end tests: etcd, the control plane and what runs on a node, as one program, because
// linking is what takes long and memory. The first argument says which of them to be.
package main

import (
	"context"
	"fmt"
	"os"
	// A time zone database of its own: schedules name zones, and the node has only what the machine has.
	_ "time/tzdata"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	// Log formats and the metrics of client and version, which each program registers in its own main.
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	manager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

var programs = map[string]func() *cobra.Command{
	"kube-apiserver":          apiserver.NewAPIServerCommand,
	"kube-controller-manager": manager.NewControllerManagerCommand,
	"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	"kube-proxy":              proxy.NewProxyCommand,
	"kubelet":                 func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) },
}

func main() {
	if len(os.Args) > 1 {
		// What follows is a command line of that program.
		name := os.Args[1]
		os.Args = os.Args[1:]
		if name == "etcd" {
			etcdmain.Main(os.Args)
			return
		}
		if command, known := programs[name]; known {
			os.Exit(cli.Run(command()))
		}
	}
	fmt.Fprintln(os.Stderr, "usage: kube etcd|kube-apiserver|kube-controller-manager|kube-scheduler|kubelet|kube-proxy FLAGS…")
	os.Exit(2)
}
