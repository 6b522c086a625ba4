SELECT a,
       b -- don't
FROM t
WHERE c = 'x\'y'
