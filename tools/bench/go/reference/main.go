// Command reference is a cloud-controller-manager on k8s.io/cloud-provider for the simulated cloud of
// the benchmark. Its provider makes one call per node, load balancer or route, as the framework asks.
package main

import (
	"os"

	"k8s.io/apimachinery/pkg/util/wait"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/app"
	"k8s.io/cloud-provider/app/config"
	"k8s.io/cloud-provider/names"
	"k8s.io/cloud-provider/options"
	"k8s.io/component-base/cli"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/klog/v2"
)

func main() {
	given, err := options.NewCloudControllerManagerOptions()
	if err != nil {
		klog.Fatal(err)
	}
	command := app.NewCloudControllerManagerCommand(
		given, connected, app.DefaultInitFuncConstructors, names.CCMControllerAliases(), cliflag.NamedFlagSets{}, wait.NeverStop,
	)
	os.Exit(cli.Run(command))
}

func connected(config *config.CompletedConfig) cloudprovider.Interface {
	chosen := config.ComponentConfig.KubeCloudShared.CloudProvider
	cloud, err := cloudprovider.InitCloudProvider(chosen.Name, chosen.CloudConfigFile)
	if err != nil {
		klog.Fatal(err)
	}
	return cloud
}
