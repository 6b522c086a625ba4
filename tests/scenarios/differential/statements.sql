-- One statement a line. Each is run by this engine and by Spark 3.5 (ANSI mode off), and both must give the same rows or
-- both refuse it. Statements whose results differ are listed in differences.txt. Names of columns are compared where the
-- statement ends in `-- names`.

-- Literals and their names
SELECT 1 -- names
SELECT -1 -- names
SELECT 'x' -- names
SELECT NULL -- names
SELECT true, false -- names
SELECT 1 AS a, 'b' AS b -- names
SELECT 9000000000 -- names
SELECT 1.5
SELECT 1e3
SELECT 'it''s'
SELECT 'it\'s'
SELECT 'a\\b'
SELECT 'a\tb'
SELECT "double"
SELECT `a` FROM (SELECT 1 AS a) t
SELECT DATE '2020-01-02'
SELECT TIMESTAMP '2020-01-02 03:04:05'
SELECT TIMESTAMP '2020-01-02 03:04:05.123'
SELECT INTERVAL '1' DAY
SELECT X'00ff'

-- Operators
SELECT 7 / 2 -- names
SELECT 10 / 4
SELECT 1 / 0
SELECT 0 / 0
SELECT 1.0 / 0
SELECT 1.0 / 3
SELECT 7 % 0
SELECT 7 % 4
SELECT -7 % 4
SELECT 7 DIV 2
SELECT 7 DIV 0
SELECT 7 DIV 0.5, 7.9 DIV 2, -7.9 DIV 2
SELECT CAST(1 AS DECIMAL(10,2)) / 3, CAST(2 AS DECIMAL(10,2)) / 3
SELECT CAST(2 AS DECIMAL(10,2)) / CAST(3 AS INT), CAST(2 AS INT) / CAST(3 AS DECIMAL(10,2))
SELECT CAST(2 AS DECIMAL(18,2)) / CAST(3 AS DECIMAL(18,2))
SELECT CAST('9999999999999999.99' AS DECIMAL(18,2)) / CAST('0.07' AS DECIMAL(18,2))
SELECT CAST(1 AS DECIMAL(38,18)) / CAST(3 AS DECIMAL(38,18))
SELECT CAST(2 AS DECIMAL(10,2)) / 0
SELECT count(*) FROM (VALUES (CAST('1e20' AS DOUBLE))) t(a) WHERE a > 1.5
SELECT count(*) FROM (VALUES (CAST('1e20' AS DOUBLE), CAST(1 AS DECIMAL(10,2)))) t(a, b) WHERE a > b AND b < a AND a <> b
SELECT 1 + 2 * 3 -- names
SELECT (1 + 2) * 3 -- names
SELECT 2147483647 + 1
SELECT '1' + 1
SELECT '3' * '4'
SELECT 'a' || 'b' || 'c' -- names
SELECT 'a' || NULL
SELECT 1 = 1, 1 <> 2, 1 < 2, 2 >= 3 -- names
SELECT 1 <=> NULL, NULL <=> NULL
SELECT '1' = 1
SELECT 'abc' = 1
SELECT NULL AND false, NULL OR true, NOT NULL -- names
SELECT 3 BETWEEN 1 AND 5 -- names
SELECT 3 IN (1, 2, 3)
SELECT 3 NOT IN (1, NULL) -- names
SELECT 'abc' LIKE 'a%', 'abc' LIKE '_b_', 'ABC' ILIKE 'a%'
SELECT 'abc' RLIKE 'b', 'abc' NOT RLIKE 'z' -- names
SELECT 5 & 3, 5 | 3, 5 ^ 3, ~5
SELECT CASE WHEN 1 > 2 THEN 'a' ELSE 'b' END -- names
SELECT CASE 3 WHEN 1 THEN 'a' WHEN 3 THEN 'c' END -- names

-- Casts
SELECT CAST('12' AS INT) -- names
SELECT CAST(' 12 ' AS INT)
SELECT CAST('abc' AS INT)
SELECT CAST('1.9' AS INT)
SELECT CAST('' AS INT)
SELECT CAST('1e2' AS DOUBLE)
SELECT CAST('x' AS DOUBLE)
SELECT CAST('2020-01-02' AS DATE)
SELECT CAST('2020-13-01' AS DATE)
SELECT CAST('nonsense' AS TIMESTAMP)
SELECT CAST('2020-01-02 03:04:05' AS TIMESTAMP)
SELECT CAST('9999-12-31 23:59:59' AS TIMESTAMP)
SELECT CAST('true' AS BOOLEAN), CAST('no' AS BOOLEAN), CAST('maybe' AS BOOLEAN)
SELECT CAST(1.9 AS INT)
SELECT CAST(-1.9 AS INT)
SELECT CAST(300 AS TINYINT)
SELECT CAST(-129 AS TINYINT), CAST(127 AS TINYINT), CAST(70000 AS SMALLINT), CAST(3000000000 AS INT)
SELECT CAST(CAST('3e9' AS DOUBLE) AS INT)
SELECT CAST(1 AS STRING)
SELECT CAST(1.5 AS STRING)
SELECT CAST(true AS STRING)
SELECT CAST(DATE '2020-01-02' AS STRING)
SELECT CAST(TIMESTAMP '2020-01-02 03:04:05' AS STRING)
SELECT CAST(TIMESTAMP '2020-01-02 03:04:05' AS DATE)
SELECT CAST(86400 AS TIMESTAMP)
SELECT CAST('12.345' AS DECIMAL(10,2))
SELECT CAST('123456' AS DECIMAL(4,2))
SELECT CAST(0.1 AS FLOAT)
SELECT CAST('7' AS LONG)
SELECT int('7'), bigint('8'), string(9), double('1.5'), boolean('true')
SELECT date('2020-01-02')

-- Conditions
SELECT if(1 > 2, 'a', 'b')
SELECT if(NULL, 1, 2)
SELECT coalesce(NULL, 1), nvl(NULL, 2), ifnull(NULL, 3), nvl2(NULL, 1, 2)
SELECT nullif(1, 1), nullif(1, 2)
SELECT isnull(NULL), isnotnull(NULL)
SELECT greatest(1, 3, 2), least(1, 3, 2)
SELECT greatest(1, NULL)

-- Text
SELECT upper('a'), lower('A'), ucase('a'), lcase('A') -- names
SELECT length('grüße'), char_length('abc'), octet_length('grüße'), bit_length('a')
SELECT trim('  a '), ltrim('  a'), rtrim('a  ') -- names
SELECT concat('a', 'b', 'c') -- names
SELECT concat('a', NULL)
SELECT concat('a', 1)
SELECT concat_ws('-', 'a', NULL, 'b')
SELECT substring('hello', 2, 3), substr('hello', 2) -- names
SELECT substring('hello', -3), substring('hello', 0, 2)
SELECT left('hello', 2), right('hello', 2)
SELECT instr('hello', 'l'), locate('l', 'hello'), locate('l', 'hello', 4), position('l' IN 'hello')
SELECT replace('abcabc', 'b', 'X')
SELECT translate('abc', 'ab', 'xy')
SELECT reverse('abc')
SELECT repeat('ab', 3)
SELECT lpad('a', 3, 'xy'), rpad('a', 3, 'xy')
SELECT lpad('abcd', 2, 'x')
SELECT initcap('hello world')
SELECT ascii('a'), chr(97), char(98)
SELECT split('a,b,c', ',')
SELECT split('a1b2c', '[0-9]')
SELECT split('a,b,c', ',', 2)
SELECT split('', ',')
SELECT split_part('a.b.c', '.', 2)
SELECT substring_index('a.b.c', '.', 2), substring_index('a.b.c', '.', -1)
SELECT regexp_replace('a1b2', '[0-9]', '#')
SELECT regexp_extract('100-200', '([0-9]+)-([0-9]+)', 2)
SELECT regexp_extract('x', '([0-9]+)', 1)
SELECT regexp_extract_all('1 2 3', '([0-9])', 1)
SELECT regexp_like('abc', 'b')
SELECT startswith('abc', 'a'), endswith('abc', 'c'), contains('abc', 'b')
SELECT space(3)
SELECT format_string('%d-%s', 1, 'a')
SELECT format_number(1234567.891, 2)
SELECT levenshtein('kitten', 'sitting')
SELECT soundex('Miller')
SELECT elt(2, 'a', 'b')
SELECT find_in_set('b', 'a,b,c')
SELECT md5('a'), sha1('a')
SELECT sha2('a', 256)
SELECT crc32('a')
SELECT hex(255), hex('a'), unhex('61')
SELECT base64('a'), unbase64('YQ==')
SELECT overlay('abcdef' PLACING 'X' FROM 2 FOR 3)

-- Numbers
SELECT abs(-1), abs(-1.5), sign(-2), negative(3), positive(3)
SELECT round(2.5), round(3.5), round(-2.5)
SELECT round(1.2345, 2)
SELECT floor(1.7), ceil(1.2), ceiling(-1.2)
SELECT floor(-1.7)
SELECT sqrt(16), cbrt(27), power(2, 10), pow(2, 0.5)
SELECT exp(0), ln(1), log(10, 100), log2(8), log10(1000)
SELECT log(1)
SELECT mod(7, 3), pmod(-7, 3)
SELECT pi(), e()
SELECT degrees(pi()), radians(180)
SELECT sin(0), cos(0), tan(0), asin(0), acos(1), atan(0)
SELECT factorial(5)
SELECT bin(5), conv('ff', 16, 10)
SELECT shiftleft(1, 3), shiftright(8, 2)
SELECT bit_count(7)
SELECT width_bucket(5.3, 0.2, 10.6, 5)
SELECT hypot(3, 4)
SELECT rint(2.5)

-- Dates and times
SELECT year('2020-02-03'), month('2020-02-03'), day('2020-02-03'), quarter('2020-05-01')
SELECT dayofmonth('2020-02-03'), dayofweek('2020-02-03'), dayofyear('2020-02-03'), weekofyear('2020-02-03')
SELECT weekday('2020-02-03')
SELECT hour('2020-02-03 04:05:06'), minute('2020-02-03 04:05:06'), second('2020-02-03 04:05:06')
SELECT year(DATE '2020-02-03'), year(TIMESTAMP '2020-02-03 04:05:06')
SELECT EXTRACT(YEAR FROM DATE '2020-02-03'), EXTRACT(MONTH FROM DATE '2020-02-03')
SELECT date_part('year', DATE '2020-02-03')
SELECT date_add('2020-02-28', 2), date_sub('2020-03-01', 1)
SELECT date_add(DATE '2020-02-28', 2)
SELECT datediff('2020-03-01', '2020-02-01')
SELECT add_months('2020-01-31', 1)
SELECT last_day('2020-02-03'), next_day('2020-02-03', 'MON')
SELECT months_between('2020-03-31', '2020-02-29')
SELECT months_between('2020-04-01', '2020-02-29')
SELECT trunc('2020-02-03', 'MM'), trunc('2020-02-03', 'YEAR')
SELECT date_trunc('month', TIMESTAMP '2020-02-03 04:05:06')
SELECT date_trunc('hour', TIMESTAMP '2020-02-03 04:05:06')
SELECT date_format(TIMESTAMP '2020-01-02 03:04:05', 'yyyy-MM-dd')
SELECT date_format('2020-01-02', 'dd.MM.yyyy'), date_format('2020-01-02', 'EEEE MMMM')
SELECT to_date('2020-01-02'), to_date('02/01/2020', 'dd/MM/yyyy')
SELECT to_date('nonsense')
SELECT to_date('nonsense', 'dd/MM/yyyy')
SELECT to_timestamp('2020-01-02 03:04:05')
SELECT to_timestamp('2020-01-02 03:04', 'yyyy-MM-dd HH:mm')
SELECT unix_timestamp('2020-01-02 03:04:05'), unix_timestamp('02/01/2020', 'dd/MM/yyyy')
SELECT from_unixtime(0), from_unixtime(86400, 'yyyy-MM-dd')
SELECT from_unixtime(unix_timestamp('2020-01-02 03:04:05'), 'yyyy-MM-dd HH:00:00')
SELECT make_date(2020, 1, 2)
SELECT DATE '2020-01-02' + INTERVAL '1' DAY
SELECT TIMESTAMP '2020-01-02 03:04:05' + INTERVAL '1' HOUR
SELECT DATE '2020-03-01' - DATE '2020-02-01'
SELECT date_from_unix_date(1), unix_date(DATE '1970-01-02')
SELECT timestamp_seconds(86400)
SELECT DATE '2020-01-02' < DATE '2020-01-03'
SELECT DATE '2020-01-02' = '2020-01-02'

-- Lists, maps, structs
SELECT array(1, 2, 3)
SELECT array(1, 2)[0], array(1, 2)[1] -- names
SELECT array(1, 2)[5]
SELECT array('a', NULL)
SELECT array(array(1), array(2, 3))
SELECT size(array(1, 2, 3)), size(map(1, 2))
SELECT array_contains(array(1, 2), 2), array_contains(array(1, 2), 3)
SELECT sort_array(array(3, 1, 2)), sort_array(array(3, 1, 2), false)
SELECT array_distinct(array(1, 1, 2)), array_union(array(1), array(2))
SELECT array_intersect(array(1, 2), array(2, 3)), array_except(array(1, 2), array(2))
SELECT array_max(array(1, 3, 2)), array_min(array(1, 3, 2))
SELECT array_join(array('a', 'b'), '-')
SELECT array_position(array('a', 'b'), 'b'), array_position(array('a'), 'z')
SELECT array_remove(array(1, 2, 1), 1)
SELECT array_repeat('a', 2)
SELECT arrays_overlap(array(1, 2), array(2, 3))
SELECT flatten(array(array(1), array(2)))
SELECT slice(array(1, 2, 3), 2, 2)
SELECT sequence(1, 5), sequence(1, 5, 2)
SELECT concat(array(1), array(2))
SELECT element_at(array(1, 2), 1)
SELECT element_at(map('a', 1), 'a')
SELECT map(1, 2, 3, 4)
SELECT map('a', 1)['a'], map('a', 1)['z']
SELECT map_keys(map('a', 1)), map_values(map('a', 1))
SELECT map_from_arrays(array('a'), array(1))
SELECT str_to_map('a:1,b:2')
SELECT named_struct('b', 1, 'a', 2)
SELECT named_struct('p', CAST(1.5 AS DECIMAL(3,1)))
SELECT struct(1, 'x').col1
SELECT named_struct('a', 1).a
SELECT get_json_object('{"a":{"b":[1,2]}}', '$.a.b[1]'), get_json_object('{"a":"x"}', '$.a')
SELECT get_json_object('{"a":1}', '$.z'), get_json_object('no', '$.a')
SELECT array(DATE '2020-01-02')
SELECT array(1.5, 2.5)
SELECT array(CAST(1.5 AS DOUBLE))
SELECT explode(array(1, 2))
SELECT transform(array(1, 2), x -> x + 1)
SELECT filter(array(1, 2, 3), x -> x > 1)

-- Aggregates
SELECT count(*), count(a), count(DISTINCT a), sum(a), avg(a), min(a), max(a) FROM (VALUES (1), (2), (2), (NULL)) t(a) -- names
SELECT count(DISTINCT a, b) FROM (VALUES (1, 2), (1, 2), (1, NULL), (2, 1)) t(a, b)
SELECT sum(a), count(*) FROM (VALUES (1)) t(a) WHERE a > 5
SELECT sort_array(collect_list(a)) FROM (VALUES (1), (2), (2)) t(a)
SELECT sort_array(collect_set(a)) FROM (VALUES (1), (2), (2)) t(a)
SELECT percentile(a, 0.5) FROM (VALUES (1), (2), (4)) t(a)
SELECT percentile_approx(a, 0.5) FROM (VALUES (1), (2), (4)) t(a)
SELECT approx_count_distinct(a) FROM (VALUES (1), (2), (2)) t(a)
SELECT stddev(a), variance(a) FROM (VALUES (1), (2), (4)) t(a)
SELECT stddev_pop(a), var_pop(a) FROM (VALUES (1), (2), (4)) t(a)
SELECT corr(a, b), covar_pop(a, b) FROM (VALUES (1, 2), (2, 4), (3, 7)) t(a, b)
SELECT max_by(a, b), min_by(a, b) FROM (VALUES ('x', 1), ('y', 2)) t(a, b)
SELECT bool_and(a), bool_or(a), every(a) FROM (VALUES (true), (false)) t(a)
SELECT count_if(a > 1) FROM (VALUES (1), (2), (3)) t(a)
SELECT first(a), last(a) FROM (VALUES (1)) t(a)
SELECT median(a) FROM (VALUES (1), (2), (4)) t(a)
SELECT b, sum(a) FROM (VALUES (1, 'x'), (2, 'y'), (3, 'x')) t(a, b) GROUP BY b ORDER BY b
SELECT b, count(*) AS n FROM (VALUES (1, 'x'), (2, 'y'), (3, 'x')) t(a, b) GROUP BY b HAVING count(*) > 1
SELECT sum(a) FILTER (WHERE a > 1) FROM (VALUES (1), (2)) t(a)
SELECT a, count(*) FROM (VALUES (1), (1)) t(a) GROUP BY 1
SELECT avg(a) FROM (VALUES (CAST(1.5 AS DECIMAL(10,2))), (2.5)) t(a)
SELECT avg(a) FROM (VALUES (CAST(1 AS DECIMAL(10,2))), (CAST(1 AS DECIMAL(10,2))), (CAST(0 AS DECIMAL(10,2)))) t(a)
SELECT sum(a / 2) FROM (VALUES (1), (2)) t(a)

-- Windows
SELECT a, row_number() OVER (ORDER BY a) FROM (VALUES (3), (1), (2)) t(a) ORDER BY a
SELECT a, rank() OVER (ORDER BY a), dense_rank() OVER (ORDER BY a) FROM (VALUES (1), (1), (2)) t(a) ORDER BY a
SELECT a, lag(a) OVER (ORDER BY a), lead(a, 1, 0) OVER (ORDER BY a) FROM (VALUES (1), (2)) t(a) ORDER BY a
SELECT a, sum(a) OVER (ORDER BY a) FROM (VALUES (1), (2), (3)) t(a) ORDER BY a
SELECT a, ntile(2) OVER (ORDER BY a) FROM (VALUES (1), (2), (3)) t(a) ORDER BY a
SELECT a, percent_rank() OVER (ORDER BY a), cume_dist() OVER (ORDER BY a) FROM (VALUES (1), (2)) t(a) ORDER BY a
SELECT a, first_value(a) OVER (ORDER BY a) FROM (VALUES (1), (2)) t(a) ORDER BY a

-- Queries
SELECT a FROM (VALUES (2), (NULL), (1)) t(a) ORDER BY a
SELECT a FROM (VALUES (2), (NULL), (1)) t(a) ORDER BY a DESC
SELECT a FROM (VALUES (2), (NULL), (1)) t(a) ORDER BY a NULLS LAST
SELECT a FROM (VALUES (1), (2), (3)) t(a) ORDER BY a LIMIT 2
SELECT a FROM (VALUES (1), (2), (3)) t(a) ORDER BY a LIMIT 1 OFFSET 1
SELECT DISTINCT a FROM (VALUES (1), (1)) t(a)
SELECT * FROM (VALUES (1, 'a')) t(x, y)
SELECT a FROM (SELECT 1 AS a UNION ALL SELECT 2) t ORDER BY a
SELECT 1 UNION SELECT 1
SELECT 1 INTERSECT SELECT 1
SELECT 1 EXCEPT SELECT 2
WITH c AS (SELECT 1 AS a) SELECT a + 1 FROM c
SELECT a.x, b.y FROM (VALUES (1)) a(x) JOIN (VALUES (1)) b(y) ON a.x = b.y
SELECT a.x, b.y FROM (VALUES (1)) a(x) LEFT JOIN (VALUES (2)) b(y) ON a.x = b.y
SELECT x FROM (VALUES (1), (2)) a(x) WHERE x IN (SELECT y FROM (VALUES (1)) b(y))
SELECT x FROM (VALUES (1), (2)) a(x) WHERE EXISTS (SELECT 1 FROM (VALUES (1)) b(y) WHERE y = x)
SELECT (SELECT max(x) FROM (VALUES (1), (2)) a(x)) AS m
SELECT x FROM (VALUES (1), (2)) a(x) LEFT SEMI JOIN (VALUES (1)) b(y) ON a.x = b.y
SELECT x FROM (VALUES (1), (2)) a(x) LEFT ANTI JOIN (VALUES (1)) b(y) ON a.x = b.y
SELECT x, count(*) FROM (VALUES (1), (1)) a(x) GROUP BY x ORDER BY 2
SELECT upper(x) FROM (VALUES ('a')) a(x) GROUP BY upper(x)
SELECT X FROM (SELECT 1 AS x) t
SELECT current_database()
SELECT current_user()
SELECT user(), current_user
SELECT typeof('a'), typeof(DATE '2020-01-02'), typeof(array('a')), typeof(CAST(1 AS DECIMAL(5,2))), typeof(NULL)
SELECT typeof(1)

-- Refused by both
SELECT
SELECT nothing
SELECT * FROM no_such_table
SELECT no_such_function(1)
SELECT sum(1, 2, 3)
SELECT a, count(*) FROM (VALUES (1)) t(a)
SELEC 1
