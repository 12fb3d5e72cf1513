// Command release makes what a release consists of: the images of the programs, and with -archives
// their archives and checksums. Equal sources give equal bytes, because each time in them is the
// one of -time.
//
//	make image      images and SBOMs, into dist/
//	make release    archives and checksums, too
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

// options are the flags of the command.
type options struct {
	// root is the checkout, out the folder that gets everything; what it had before is removed.
	root, out string
	// version is the tag of the images, and revision the commit.
	version, revision string
	// seconds is the Unix time of all files and images.
	seconds int64
	// nodeBase is what nodeagent's image stands on; see base.
	nodeBase string
	// archives adds archives and checksums.
	archives bool
}

func main() {
	var o options
	flag.StringVar(&o.root, "root", ".", "the checkout")
	flag.StringVar(&o.out, "out", "dist", "folder for the results, which is emptied first")
	flag.StringVar(&o.version, "version", "dev", "version of the programs, and tag of the images")
	flag.StringVar(&o.revision, "revision", "", "commit of the sources")
	flag.Int64Var(&o.seconds, "time", 0, "Unix time of all files, in seconds")
	flag.StringVar(&o.nodeBase, "node-base", "",
		"base of nodeagent's image: an OCI archive, one of docker save, or an image of a registry; empty for no system")
	flag.BoolVar(&o.archives, "archives", false, "also make archives of the programs, and checksums")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := release(ctx, o, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// release builds everything, and prints the digest of each image.
func release(ctx context.Context, o options, log io.Writer) error {
	for _, dir := range []*string{&o.root, &o.out} {
		var err error
		if *dir, err = filepath.Abs(*dir); err != nil {
			return err
		}
	}
	if err := prepare(o.out); err != nil {
		return err
	}
	when := time.Unix(o.seconds, 0).UTC()
	work := filepath.Join(o.out, "build")
	defer func() { _ = os.RemoveAll(work) }()
	systems, err := base(ctx, o.nodeBase, filepath.Join(work, "base"))
	if err != nil {
		return fmt.Errorf("base of nodeagent %s: %w", o.nodeBase, err)
	}
	for _, p := range programs(systems) {
		var images []platformImage
		for _, platform := range platforms {
			if p.bases != nil && p.bases[platform] == nil {
				_, _ = fmt.Fprintf(log, "%s: no image for %s, which the base lacks\n", p.name, platform)
				continue
			}
			image, err := makeImage(ctx, o, p, platform, when)
			if err != nil {
				return fmt.Errorf("%s for %s: %w", p.name, platform, err)
			}
			images = append(images, platformImage{platform, image})
		}
		if err := writeImages(o, p.name, when, images, log); err != nil {
			return fmt.Errorf("image of %s: %w", p.name, err)
		}
	}
	if !o.archives {
		return nil
	}
	for _, platform := range platforms {
		if err := archive(ctx, o, platform, when); err != nil {
			return fmt.Errorf("archive for %s: %w", platform, err)
		}
	}
	if err := os.RemoveAll(work); err != nil {
		return err
	}
	return checksums(o.out)
}

// prepare empties what an earlier run left in the folder. It refuses a folder with anything else.
func prepare(out string) error {
	const marker = ".freeslot-release"
	entries, err := os.ReadDir(out)
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	if len(entries) > 0 {
		if _, err := os.Stat(filepath.Join(out, marker)); err != nil {
			return fmt.Errorf("%s has files that an earlier release did not make; want an empty folder, or a new one", out)
		}
		if err := os.RemoveAll(out); err != nil {
			return err
		}
	}
	for _, dir := range []string{"images", "sbom"} {
		if err := os.MkdirAll(filepath.Join(out, dir), 0o755); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(out, marker), nil, 0o644)
}
