-- Whole databases, which kits and the lab make for themselves beside the one that they were given.
-- A name of a database is no value that could be bound: `arl_scratch_new` and `arl_scratch_old` stand for two of them.

-- name: make
CREATE DATABASE arl_scratch_new TEMPLATE template0 ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C';

-- name: copy
CREATE DATABASE arl_scratch_new TEMPLATE arl_scratch_old;

-- name: drop
DROP DATABASE IF EXISTS arl_scratch_new WITH (FORCE);
