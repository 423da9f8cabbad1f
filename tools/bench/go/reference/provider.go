package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cloudprovider "k8s.io/cloud-provider"
)

const (
	providerName = "bench"
	connections  = 256
)

func init() {
	cloudprovider.RegisterCloudProvider(providerName, func(file io.Reader) (cloudprovider.Interface, error) {
		var given struct{ Endpoint string }
		if err := json.NewDecoder(file).Decode(&given); err != nil {
			return nil, err
		}
		transport := &http.Transport{MaxIdleConns: connections, MaxIdleConnsPerHost: connections}
		return &provider{given.Endpoint, &http.Client{Transport: transport, Timeout: 30 * time.Second}}, nil
	})
}

type provider struct {
	endpoint string
	client   *http.Client
}

var errNotFound = errors.New("not found")

func (p *provider) Initialize(cloudprovider.ControllerClientBuilder, <-chan struct{}) {}
func (p *provider) LoadBalancer() (cloudprovider.LoadBalancer, bool)                  { return p, true }
func (p *provider) Instances() (cloudprovider.Instances, bool)                        { return nil, false }
func (p *provider) InstancesV2() (cloudprovider.InstancesV2, bool)                    { return p, true }
func (p *provider) Zones() (cloudprovider.Zones, bool)                                { return nil, false }
func (p *provider) Clusters() (cloudprovider.Clusters, bool)                          { return nil, false }
func (p *provider) Routes() (cloudprovider.Routes, bool)                              { return p, true }
func (p *provider) ProviderName() string                                              { return providerName }
func (p *provider) HasClusterID() bool                                                { return true }

// send makes one call. An answer of the cloud other than 2xx is an error.
func (p *provider) send(ctx context.Context, method, path string, body, answer any) error {
	content, err := json.Marshal(body)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, method, p.endpoint+path, bytes.NewReader(content))
	if err != nil {
		return err
	}
	response, err := p.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	received, err := io.ReadAll(response.Body)
	switch {
	case err != nil:
		return err
	case response.StatusCode == http.StatusNotFound:
		return errNotFound
	case response.StatusCode >= http.StatusMultipleChoices:
		return fmt.Errorf("%s %s: %s", method, path, response.Status)
	case answer == nil:
		return nil
	}
	return json.Unmarshal(received, answer)
}

type instance struct {
	Name, ID, Address, Zone, Region, Type string
	Stopped                               bool
}

func (p *provider) instance(ctx context.Context, node *v1.Node) (instance, error) {
	var found instance
	err := p.send(ctx, http.MethodGet, "/v1/instances/"+node.Name, nil, &found)
	return found, err
}

func (p *provider) InstanceExists(ctx context.Context, node *v1.Node) (bool, error) {
	_, err := p.instance(ctx, node)
	if errors.Is(err, errNotFound) {
		return false, nil
	}
	return err == nil, err
}

func (p *provider) InstanceShutdown(ctx context.Context, node *v1.Node) (bool, error) {
	found, err := p.instance(ctx, node)
	return found.Stopped, err
}

func (p *provider) InstanceMetadata(ctx context.Context, node *v1.Node) (*cloudprovider.InstanceMetadata, error) {
	found, err := p.instance(ctx, node)
	if errors.Is(err, errNotFound) {
		return nil, cloudprovider.InstanceNotFound
	}
	if err != nil {
		return nil, err
	}
	return &cloudprovider.InstanceMetadata{
		ProviderID:   providerName + "://" + found.ID,
		InstanceType: found.Type,
		Zone:         found.Zone,
		Region:       found.Region,
		NodeAddresses: []v1.NodeAddress{
			{Type: v1.NodeInternalIP, Address: found.Address},
			{Type: v1.NodeHostName, Address: found.Name},
		},
	}, nil
}

type port struct {
	Port      int    `json:"port"`
	NodePort  int    `json:"nodePort"`
	Transport string `json:"transport"`
}

type balancer struct {
	Cluster string   `json:"cluster,omitempty"`
	Service string   `json:"service,omitempty"`
	IP      string   `json:"ip,omitempty"`
	Ports   []port   `json:"ports,omitempty"`
	Members []string `json:"members"`
}

func path(service *v1.Service) string { return "/v1/balancers/" + string(service.UID) }

func status(found balancer) *v1.LoadBalancerStatus {
	return &v1.LoadBalancerStatus{Ingress: []v1.LoadBalancerIngress{{IP: found.IP}}}
}

func members(nodes []*v1.Node) []string {
	names := make([]string, 0, len(nodes))
	for _, node := range nodes {
		names = append(names, node.Name)
	}
	return names
}

func (p *provider) GetLoadBalancerName(_ context.Context, _ string, service *v1.Service) string {
	return cloudprovider.DefaultLoadBalancerName(service)
}

func (p *provider) GetLoadBalancer(ctx context.Context, _ string, service *v1.Service) (*v1.LoadBalancerStatus, bool, error) {
	var found balancer
	err := p.send(ctx, http.MethodGet, path(service), nil, &found)
	if errors.Is(err, errNotFound) {
		return nil, false, nil
	}
	return status(found), err == nil, err
}

func (p *provider) EnsureLoadBalancer(ctx context.Context, cluster string, service *v1.Service, nodes []*v1.Node) (*v1.LoadBalancerStatus, error) {
	wanted := balancer{Cluster: cluster, Service: service.Namespace + "/" + service.Name, Members: members(nodes)}
	for _, one := range service.Spec.Ports {
		wanted.Ports = append(wanted.Ports, port{int(one.Port), int(one.NodePort), string(one.Protocol)})
	}
	var made balancer
	if err := p.send(ctx, http.MethodPut, path(service), wanted, &made); err != nil {
		return nil, err
	}
	return status(made), nil
}

func (p *provider) UpdateLoadBalancer(ctx context.Context, _ string, service *v1.Service, nodes []*v1.Node) error {
	return p.send(ctx, http.MethodPut, path(service)+"/members", balancer{Members: members(nodes)}, nil)
}

func (p *provider) EnsureLoadBalancerDeleted(ctx context.Context, _ string, service *v1.Service) error {
	return p.send(ctx, http.MethodDelete, path(service), nil, nil)
}

type route struct {
	Destination string `json:"destination"`
	Target      string `json:"target"`
	Cluster     string `json:"cluster"`
}

type routes struct {
	Routes []route `json:"routes"`
}

func (p *provider) ListRoutes(ctx context.Context, _ string) ([]*cloudprovider.Route, error) {
	var found routes
	err := p.send(ctx, http.MethodGet, "/v1/routes", nil, &found)
	listed := make([]*cloudprovider.Route, 0, len(found.Routes))
	for _, one := range found.Routes {
		listed = append(listed, &cloudprovider.Route{Name: one.Destination, TargetNode: types.NodeName(one.Target), DestinationCIDR: one.Destination})
	}
	return listed, err
}

func (p *provider) CreateRoute(ctx context.Context, cluster, _ string, wanted *cloudprovider.Route) error {
	one := route{wanted.DestinationCIDR, string(wanted.TargetNode), cluster}
	return p.send(ctx, http.MethodPost, "/v1/routes", routes{[]route{one}}, nil)
}

func (p *provider) DeleteRoute(ctx context.Context, cluster string, gone *cloudprovider.Route) error {
	one := route{gone.DestinationCIDR, string(gone.TargetNode), cluster}
	return p.send(ctx, http.MethodPost, "/v1/routes/delete", routes{[]route{one}}, nil)
}
