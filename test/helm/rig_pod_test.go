package helm

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
)

// secrets returns what the sets' Secrets hold, made as docs/kubernetes.md tells users to make it.
func secrets(t *testing.T) map[string]map[string][]byte {
	t.Helper()
	ops, opsLine := schedctl(t, "tokens", "new", "ops", "--role", "admin", "--tenant", "ops")
	made := map[string]map[string][]byte{
		"ops":               {"token": ops},
		"freeslot-tokens":   {"tokens.yaml": opsLine},
		"freeslot-tls":      certificate(t, "freeslot."+namespace+".svc"),
		"freeslot-redis-ca": certificate(t, "redis"),
	}
	for _, name := range []string{"freeslot-redis", "freeslot-sentinel", "freeslot-crm"} {
		made[name] = map[string][]byte{"password": []byte("password-of-32-characters-0000000")}
	}
	var lines []byte
	for _, group := range []string{"cpu", "whisper", "tts"} {
		token, line := schedctl(t, "nodes", "token", "freeslot-"+group+"-*", "--name", group)
		made["freeslot-node-"+group], lines = map[string][]byte{"token": token}, append(lines, line...)
	}
	made["freeslot-node-tokens"] = map[string][]byte{"node-tokens.yaml": lines}
	return made
}

// schedctl returns what schedctl writes.
func schedctl(t *testing.T, args ...string) (stdout, stderr []byte) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(t.Context(), filepath.Join(programs, "schedctl"), args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = environment(nil), &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("schedctl %v: %v\n%s", args, err, errs.Bytes())
	}
	return out.Bytes(), errs.Bytes()
}

// certificate makes what a Secret of a certificate holds. It is its own authority.
func certificate(t *testing.T, name string) map[string][]byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	public := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return map[string][]byte{
		"tls.crt": public, "tls.key": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), "ca.crt": public,
	}
}

// fakePod is a folder with the files that a container of a pod sees, and its environment.
type fakePod struct {
	t   *testing.T
	dir string
	env []string
	// args of the container, with paths in dir.
	args []string
}

// pod lays out what a container of a workload gets: each file comes from an object of o, or from a
// Secret that it names.
func pod(t *testing.T, o *objects, w workload, c core.Container, made map[string]map[string][]byte) *fakePod {
	t.Helper()
	p := &fakePod{t: t, dir: t.TempDir()}
	for _, mount := range c.VolumeMounts {
		for _, v := range w.pod.Spec.Volumes {
			if v.Name == mount.Name {
				p.mount(o, mount.MountPath, v, made)
			}
		}
	}
	fields := map[string]string{"status.podIP": "10.1.2.3", "spec.nodeName": "worker-1", "metadata.name": w.name + "-5d8f7c9b6-x2x4z"}
	values := map[string]string{}
	for _, e := range c.Env {
		value := e.Value
		if e.ValueFrom != nil && e.ValueFrom.FieldRef != nil {
			value = fields[e.ValueFrom.FieldRef.FieldPath]
		}
		for name, known := range values {
			value = strings.ReplaceAll(value, "$("+name+")", known)
		}
		values[e.Name] = value
		p.env = append(p.env, e.Name+"="+value)
	}
	for _, arg := range c.Args {
		p.args = append(p.args, p.local(arg))
	}
	return p
}

// local returns a text with the paths of this machine in place of the pod's.
func (p *fakePod) local(text string) string {
	return strings.NewReplacer("/etc/freeslot/", p.dir+"/etc/freeslot/", "=/tmp ", "="+p.dir+"/tmp ").Replace(text)
}

// inPod undoes local.
func (p *fakePod) inPod(text string) string { return strings.ReplaceAll(text, p.dir, "") }

func (p *fakePod) mount(o *objects, path string, v core.Volume, made map[string]map[string][]byte) {
	p.t.Helper()
	files, items := map[string][]byte{}, []core.KeyToPath(nil)
	switch {
	case v.ConfigMap != nil:
		for _, m := range of[*core.ConfigMap](o) {
			if m.Name == v.ConfigMap.Name {
				for name, text := range m.Data {
					files[name] = []byte(p.local(text))
				}
			}
		}
	case v.Secret != nil:
		files, items = made[v.Secret.SecretName], v.Secret.Items
	case v.EmptyDir == nil:
		return // Kubernetes' own
	}
	if len(files) == 0 && v.EmptyDir == nil {
		p.t.Errorf("the volume %s has no files; want an object or a Secret that the guide makes", v.Name)
	}
	if items == nil {
		for name := range files {
			items = append(items, core.KeyToPath{Key: name, Path: name})
		}
	}
	mounted := map[string][]byte{}
	for _, item := range items {
		if files[item.Key] == nil {
			p.t.Errorf("the volume %s has no key %s; want what the guide makes", v.Name, item.Key)
		}
		mounted[item.Path] = files[item.Key]
	}
	p.write(path, mounted)
}

// write gives a folder of the pod its files, or new ones, as the kubelet does: the files are links
// through one link, which leads to another folder after a change.
func (p *fakePod) write(path string, files map[string][]byte) {
	p.t.Helper()
	folder := filepath.Join(p.dir, path)
	err := os.MkdirAll(folder, 0o700)
	version, versionErr := os.MkdirTemp(folder, "..version-")
	err = errors.Join(err, versionErr)
	for name, content := range files {
		err = errors.Join(err, os.WriteFile(filepath.Join(version, name), content, 0o440))
		if link := filepath.Join(folder, name); !exists(link) {
			err = errors.Join(err, os.Symlink(filepath.Join("..data", name), link))
		}
	}
	next := filepath.Join(folder, "..data_tmp")
	err = errors.Join(err, os.Symlink(filepath.Base(version), next), os.Rename(next, filepath.Join(folder, "..data")))
	if err != nil {
		p.t.Fatal(err)
	}
}

func exists(link string) bool {
	_, err := os.Lstat(link)
	return err == nil
}

// environment returns this process' environment without freeslot's variables, and with more.
func environment(more []string) []string {
	var env []string
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "FREESLOT_") {
			env = append(env, e)
		}
	}
	return append(env, more...)
}

// command returns the program of the pod's container, with further arguments.
func (p *fakePod) command(program string, more ...string) *exec.Cmd {
	cmd := exec.CommandContext(p.t.Context(), filepath.Join(programs, program), append(p.args, more...)...)
	cmd.Env, cmd.Dir = environment(p.env), p.dir
	return cmd
}
