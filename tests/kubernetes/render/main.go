// kustomize as the tests need it: renders a folder with the real library and prints its objects as one JSON list, in the
// order in which they would be applied.
//
//	render FOLDER
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

func main() {
	if err := render(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// render does what `kubectl kustomize FOLDER` does: no plugins, and no file outside of the roots of what is rendered.
func render(arguments []string) error {
	if len(arguments) != 1 {
		return fmt.Errorf("usage: render FOLDER")
	}
	options := krusty.MakeDefaultOptions()
	options.Reorder = krusty.ReorderOptionLegacy
	options.LoadRestrictions = types.LoadRestrictionsRootOnly
	found, err := krusty.MakeKustomizer(options).Run(filesys.MakeFsOnDisk(), arguments[0])
	if err != nil {
		return err
	}
	objects := make([]any, 0, found.Size())
	for _, resource := range found.Resources() {
		object, err := resource.Map()
		if err != nil {
			return err
		}
		objects = append(objects, object)
	}
	return json.NewEncoder(os.Stdout).Encode(objects)
}
