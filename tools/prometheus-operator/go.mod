// Pins the module that has the CustomResourceDefinitions of the Prometheus operator. Nothing is built from it.
module pileus.test/prometheus-operator

go 1.26.0

require github.com/prometheus-operator/prometheus-operator v0.85.0
