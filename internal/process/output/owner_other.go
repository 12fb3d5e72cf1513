//go:build !unix

package output

import (
	"io/fs"
	"os"
)

func keepOwner(*os.File, fs.FileInfo) {}
