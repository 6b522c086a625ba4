module enginehouse/tests/usql

go 1.25.0

require github.com/xo/usql v0.19.24

replace sqlflow.org/gohive => github.com/sql-machine-learning/gohive v0.0.0-20240730014249-8960223660e2
