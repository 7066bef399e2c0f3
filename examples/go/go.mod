module example.com/shop

go 1.19

// The newest that takes Go 1.19, which is Debian 12's.
require github.com/lib/pq v1.10.9
