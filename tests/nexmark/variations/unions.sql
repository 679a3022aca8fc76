-- An aggregate over two streams.
-- sources: bid auction
CREATE TABLE union_grouped AS SELECT id, COUNT(*) AS n, SUM(amount) AS s FROM (
  SELECT auction AS id, price AS amount FROM bid WHERE price > 1000 UNION ALL SELECT id, initialBid AS amount FROM auction) q
 GROUP BY id;

-- answer
SELECT id, COUNT(*) AS n, SUM(amount) AS s FROM (
  SELECT auction AS id, price AS amount FROM bid WHERE price > 1000 UNION ALL SELECT id, initialBid AS amount FROM auction) q
 GROUP BY id

-- next
-- Two streams in one.
-- sources: bid auction
CREATE STREAM union_alone AS SELECT 'bid' AS kind, auction AS id, price AS amount, dateTime FROM bid UNION ALL SELECT 'auction' AS kind, id, initialBid AS amount, dateTime FROM auction;

-- answer
SELECT 'bid' AS kind, auction AS id, price AS amount, dateTime FROM bid UNION ALL SELECT 'auction' AS kind, id, initialBid AS amount, dateTime FROM auction

-- next
-- The same stream twice, and others.
-- sources: bid person auction
CREATE TABLE union_of_four AS SELECT kind, COUNT(*) AS n, MAX(dateTime) AS last FROM (
 SELECT 'cheap' AS kind, dateTime FROM bid WHERE price < 1000 UNION ALL SELECT 'dear' AS kind, dateTime FROM bid WHERE price > 1000000
 UNION ALL SELECT state AS kind, dateTime FROM person UNION ALL SELECT 'auction' AS kind, dateTime FROM auction) q GROUP BY kind;

-- answer
SELECT kind, COUNT(*) AS n, MAX(dateTime) AS last FROM (
 SELECT 'cheap' AS kind, dateTime FROM bid WHERE price < 1000 UNION ALL SELECT 'dear' AS kind, dateTime FROM bid WHERE price > 1000000
 UNION ALL SELECT state AS kind, dateTime FROM person UNION ALL SELECT 'auction' AS kind, dateTime FROM auction) q GROUP BY kind
