module shoal.example/all_reduce

go 1.19
