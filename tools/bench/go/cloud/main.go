// Command cloud is the simulated cloud of the benchmark: instances, load balancers and routes over
// HTTP on loopback. Each call takes a fixed time. Calls may be limited: a burst, then 429 with
// Retry-After. Calls are counted by kind. Paths below /admin are for the benchmark: free and not counted.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"math"
	"net"
	"net/http"
	"os"
	"sync"
	"time"
)

// Instance is a machine, found by the name of its node.
type Instance struct {
	Name    string `json:"name"`
	ID      string `json:"id"`
	Address string `json:"address"`
	Zone    string `json:"zone"`
	Region  string `json:"region"`
	Type    string `json:"type"`
	Stopped bool   `json:"stopped"`
}

// Port is one port of a load balancer.
type Port struct {
	Port      int    `json:"port"`
	NodePort  int    `json:"nodePort"`
	Transport string `json:"transport"`
}

// Balancer is a load balancer, found by the UID of its Service.
type Balancer struct {
	UID        string   `json:"uid"`
	Cluster    string   `json:"cluster"`
	Service    string   `json:"service"`
	IP         string   `json:"ip"`
	Ports      []Port   `json:"ports"`
	Members    []string `json:"members,omitempty"`
	Count      int      `json:"count"`
	SpecTag    string   `json:"specTag"`
	MembersTag string   `json:"membersTag"`
}

// Route leads to the pod range of a node.
type Route struct {
	Destination string `json:"destination"`
	Target      string `json:"target"`
	Cluster     string `json:"cluster"`
}

// Pace says how long a call takes, and how many are allowed: PerSecond 0 is no limit.
type Pace struct {
	LatencyMS int     `json:"latencyMs"`
	PerSecond float64 `json:"perSecond"`
	Burst     float64 `json:"burst"`
}

// Stats are the counts since the last reset.
type Stats struct {
	Calls         map[string]int `json:"calls"`
	Refused       int            `json:"refused"`
	MaxConcurrent int            `json:"maxConcurrent"`
}

type cloud struct {
	mutex     sync.Mutex
	names     map[string]string
	instances map[string]*Instance
	balancers map[string]*Balancer
	routes    map[string]Route
	made      int
	pace      Pace
	tokens    float64
	filled    time.Time
	stats     Stats
	active    int
}

var errNotFound = errors.New("not found")

func main() {
	address := flag.String("listen", "127.0.0.1:0", "address to listen on")
	flag.Parse()
	one := &cloud{
		names: map[string]string{}, instances: map[string]*Instance{}, balancers: map[string]*Balancer{}, routes: map[string]Route{},
		stats: Stats{Calls: map[string]int{}},
	}
	listener, err := net.Listen("tcp", *address)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("http://%s\n", listener.Addr())
	_ = os.Stdout.Sync()
	log.Fatal(http.Serve(listener, one.routing()))
}

func (c *cloud) routing() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/instances/find", c.call("instances.find", c.findInstances))
	mux.HandleFunc("GET /v1/instances/{name}", c.call("instances.get", c.getInstance))
	mux.HandleFunc("POST /v1/balancers/find", c.call("balancers.find", c.findBalancers))
	mux.HandleFunc("GET /v1/balancers/{uid}", c.call("balancers.get", c.getBalancer))
	mux.HandleFunc("PUT /v1/balancers/{uid}", c.call("balancers.put", c.putBalancer))
	mux.HandleFunc("PUT /v1/balancers/{uid}/members", c.call("balancers.members", c.putMembers))
	mux.HandleFunc("DELETE /v1/balancers/{uid}", c.call("balancers.delete", c.deleteBalancer))
	mux.HandleFunc("GET /v1/routes", c.call("routes.list", c.listRoutes))
	mux.HandleFunc("POST /v1/routes", c.call("routes.create", c.createRoutes))
	mux.HandleFunc("POST /v1/routes/delete", c.call("routes.delete", c.deleteRoutes))
	mux.HandleFunc("GET /admin/stats", c.admin(c.readStats))
	mux.HandleFunc("POST /admin/reset", c.admin(c.reset))
	mux.HandleFunc("POST /admin/pace", c.admin(c.setPace))
	mux.HandleFunc("POST /admin/instances", c.admin(c.putInstances))
	mux.HandleFunc("POST /admin/routes", c.admin(c.createRoutes))
	mux.HandleFunc("GET /admin/progress", c.admin(c.progress))
	mux.HandleFunc("GET /admin/dump", c.admin(c.dump))
	return mux
}

type handler func(*http.Request) (any, error)

func (c *cloud) admin(do handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		c.mutex.Lock()
		answer, err := do(r)
		body := encoded(answer)
		c.mutex.Unlock()
		reply(w, body, err)
	}
}

// call counts and delays a call of the cloud, or refuses it.
func (c *cloud) call(kind string, do handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		wait, latency := c.begin(kind)
		if wait > 0 {
			w.Header().Set("Retry-After", fmt.Sprint(math.Ceil(wait)))
			http.Error(w, `{"message": "too many requests"}`, http.StatusTooManyRequests)
			return
		}
		time.Sleep(latency)
		c.mutex.Lock()
		answer, err := do(r)
		body := encoded(answer)
		c.active--
		c.mutex.Unlock()
		reply(w, body, err)
	}
}

// begin returns the seconds to wait if the call is refused, and how long it takes if not.
func (c *cloud) begin(kind string) (float64, time.Duration) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.pace.PerSecond > 0 {
		now := time.Now()
		c.tokens = math.Min(c.pace.Burst, c.tokens+now.Sub(c.filled).Seconds()*c.pace.PerSecond)
		c.filled = now
		if c.tokens < 1 {
			c.stats.Refused++
			return (1 - c.tokens) / c.pace.PerSecond, 0
		}
		c.tokens--
	}
	c.stats.Calls[kind]++
	c.active++
	c.stats.MaxConcurrent = max(c.stats.MaxConcurrent, c.active)
	return 0, time.Duration(c.pace.LatencyMS) * time.Millisecond
}

func encoded(answer any) []byte {
	body, err := json.Marshal(answer)
	if err != nil {
		log.Fatal(err)
	}
	return body
}

func reply(w http.ResponseWriter, body []byte, err error) {
	w.Header().Set("Content-Type", "application/json")
	switch {
	case errors.Is(err, errNotFound):
		w.WriteHeader(http.StatusNotFound)
		body = []byte(`{"message": "not found"}`)
	case err != nil:
		w.WriteHeader(http.StatusBadRequest)
		body = encoded(map[string]string{"message": err.Error()})
	}
	_, _ = w.Write(body)
}

func read[T any](r *http.Request) (T, error) {
	var body T
	err := json.NewDecoder(r.Body).Decode(&body)
	return body, err
}

func (c *cloud) findInstances(r *http.Request) (any, error) {
	asked, err := read[struct{ Names []string }](r)
	found := make([]*Instance, 0, len(asked.Names))
	for _, name := range asked.Names {
		if one := c.instances[name]; one != nil {
			found = append(found, one)
		}
	}
	return map[string]any{"instances": found}, err
}

func (c *cloud) getInstance(r *http.Request) (any, error) {
	one := c.instances[r.PathValue("name")]
	if one == nil {
		return nil, errNotFound
	}
	return one, nil
}

// findBalancers returns balancers by UID, or all of them, with their members only if asked.
func (c *cloud) findBalancers(r *http.Request) (any, error) {
	asked, err := read[struct {
		UIDs    []string
		Members bool
	}](r)
	found := []Balancer{}
	add := func(one *Balancer) {
		if one != nil {
			found = append(found, one.shown(asked.Members))
		}
	}
	for _, uid := range asked.UIDs {
		add(c.balancers[uid])
	}
	if asked.UIDs == nil {
		for _, one := range c.balancers {
			add(one)
		}
	}
	return map[string]any{"balancers": found}, err
}

func (b *Balancer) shown(members bool) Balancer {
	one := *b
	one.Count = len(b.Members)
	if !members {
		one.Members = nil
	}
	return one
}

func (c *cloud) getBalancer(r *http.Request) (any, error) {
	one := c.balancers[r.PathValue("uid")]
	if one == nil {
		return nil, errNotFound
	}
	return one.shown(false), nil
}

// putBalancer creates a balancer or replaces everything about it but its address.
func (c *cloud) putBalancer(r *http.Request) (any, error) {
	one, err := read[Balancer](r)
	if err != nil {
		return nil, err
	}
	one.UID = r.PathValue("uid")
	one.Members = c.interned(one.Members)
	if before := c.balancers[one.UID]; before != nil {
		one.IP = before.IP
	} else {
		c.made++
		one.IP = fmt.Sprintf("198.18.%d.%d", c.made/256%256, c.made%256)
	}
	c.balancers[one.UID] = &one
	return one.shown(false), nil
}

func (c *cloud) putMembers(r *http.Request) (any, error) {
	one := c.balancers[r.PathValue("uid")]
	if one == nil {
		return nil, errNotFound
	}
	asked, err := read[Balancer](r)
	if err != nil {
		return nil, err
	}
	one.Members, one.MembersTag = c.interned(asked.Members), asked.MembersTag
	return one.shown(false), nil
}

// interned keeps one copy of each name: a thousand balancers share a thousand members.
func (c *cloud) interned(members []string) []string {
	for i, each := range members {
		name, known := c.names[each]
		if !known {
			c.names[each], name = each, each
		}
		members[i] = name
	}
	return members
}

func (c *cloud) deleteBalancer(r *http.Request) (any, error) {
	delete(c.balancers, r.PathValue("uid"))
	return struct{}{}, nil
}

func (c *cloud) listRoutes(*http.Request) (any, error) {
	found := make([]Route, 0, len(c.routes))
	for _, one := range c.routes {
		found = append(found, one)
	}
	return map[string]any{"routes": found}, nil
}

func (c *cloud) createRoutes(r *http.Request) (any, error) {
	asked, err := read[struct{ Routes []Route }](r)
	for _, one := range asked.Routes {
		c.routes[one.Destination] = one
	}
	return struct{}{}, err
}

func (c *cloud) deleteRoutes(r *http.Request) (any, error) {
	asked, err := read[struct{ Routes []Route }](r)
	for _, one := range asked.Routes {
		delete(c.routes, one.Destination)
	}
	return struct{}{}, err
}

func (c *cloud) readStats(*http.Request) (any, error) { return c.stats, nil }

func (c *cloud) reset(*http.Request) (any, error) {
	c.stats = Stats{Calls: map[string]int{}}
	return struct{}{}, nil
}

func (c *cloud) setPace(r *http.Request) (any, error) {
	pace, err := read[Pace](r)
	c.pace, c.tokens, c.filled = pace, pace.Burst, time.Now()
	return struct{}{}, err
}

func (c *cloud) putInstances(r *http.Request) (any, error) {
	asked, err := read[struct{ Instances []Instance }](r)
	for _, one := range asked.Instances {
		c.instances[one.Name] = &one
	}
	return struct{}{}, err
}

// progress says how many objects there are, and how many balancers have each number of members.
func (c *cloud) progress(*http.Request) (any, error) {
	counts := map[int]int{}
	for _, one := range c.balancers {
		counts[len(one.Members)]++
	}
	return map[string]any{"balancers": len(c.balancers), "routes": len(c.routes), "members": counts}, nil
}

func (c *cloud) dump(*http.Request) (any, error) {
	return map[string]any{"balancers": c.balancers, "routes": c.routes}, nil
}
