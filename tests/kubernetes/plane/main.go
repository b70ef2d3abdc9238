// Command plane is a Kubernetes control plane in one executable: each component is a subcommand,
// with the flags that its own program has.
//
// One executable is linked once, not five times, which is most of the build. Each component still
// is a process of its own when it runs, so that a test can stop, kill or restart any of them
// without the others. Everything that a test decides (ports, keys, flags) is decided by the Python
// code that starts the components.
package main

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

const usageError = 2

// components run until they end; each reads its flags from os.Args.
var components = map[string]func(){
	"etcd":                    func() { etcdmain.Main(os.Args) },
	"kube-apiserver":          daemon(apiserver.NewAPIServerCommand),
	"kube-controller-manager": daemon(controllers.NewControllerManagerCommand),
	"kube-scheduler":          daemon(func() *cobra.Command { return scheduler.NewSchedulerCommand() }),
	"kubectl":                 runKubectl,
}

func main() {
	if len(os.Args) > 1 {
		if run, known := components[os.Args[1]]; known {
			os.Args = os.Args[1:]
			run()
			return
		}
	}
	names := slices.Sorted(maps.Keys(components))
	fmt.Fprintf(os.Stderr, "plane: name a component: %s\n", strings.Join(names, ", "))
	os.Exit(usageError)
}

// daemon builds the command only when it runs: building one registers feature gates and metrics
// of its component, which the process of another component must not have.
func daemon(command func() *cobra.Command) func() {
	return func() { os.Exit(cli.Run(command())) }
}

// runKubectl prints errors as kubectl does, which differs from the daemons.
func runKubectl() {
	if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
		kubectlutil.CheckErr(err)
	}
}
