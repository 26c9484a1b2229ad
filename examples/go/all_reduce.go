// The library from Go: sums numbers over all ranks of a group, by cgo.
//
//	go build -o all_reduce_go ./examples/go
//	shoal launch --ranks 2 -- ./all_reduce_go
package main

/*
#cgo pkg-config: shoal
#include <shoal.h>
*/
import "C"

import (
	"fmt"
	"os"
	"unsafe"
)

// check ends the program with what the library says is wrong.
func check(status C.shoal_status, err *C.shoal_error) {
	if status < 0 {
		fmt.Fprintln(os.Stderr, "all_reduce:", C.GoString(&err.text[0]))
		os.Exit(1)
	}
}

func main() {
	var err C.shoal_error
	var group *C.shoal_group
	check(C.shoal_group_open(nil, &group, &err), &err)
	defer C.shoal_group_close(group)

	rank, size := int(C.shoal_group_rank(group)), int(C.shoal_group_size(group))
	values := make([]float32, 1000)
	for i := range values {
		values[i] = float32(rank + 1)
	}
	first := (*C.float)(unsafe.Pointer(&values[0]))
	check(C.shoal_all_reduce_f32(group, first, C.size_t(len(values)), &err), &err)
	fmt.Printf("rank %d of %d: the sum is %g\n", rank, size, values[len(values)-1])
}
