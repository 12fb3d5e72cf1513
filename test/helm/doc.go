// Package helm tests the chart deploy/helm/freeslot: Helm's own library renders it with each set of
// values of its folder examples, the objects are decoded strictly into Kubernetes' types, and the
// real programs check and run the configurations in them. No cluster is needed, and none is used.
//
// It is a module of its own because Helm and Kubernetes are a thousand packages. Run it with:
// make helm-test
package helm
