-- IN (SELECT …) of the same stream.
-- sources: bid
CREATE TABLE in_query AS SELECT auction, price FROM bid WHERE auction IN (SELECT auction FROM bid WHERE price > 50000000);

-- answer
SELECT auction, price FROM bid WHERE auction IN (SELECT auction FROM bid WHERE price > 50000000)

-- next
-- The hot items, as the workload has them.
-- sources: bid
CREATE TABLE hot_items AS WITH n AS (
      SELECT auction, window_start, COUNT(*) AS num
      FROM TABLE(HOP(TABLE bid, DESCRIPTOR(dateTime),
                     INTERVAL '2' SECOND, INTERVAL '10' SECOND))
      GROUP BY auction, window_start, window_end)
    SELECT auction, num FROM n
    WHERE num >= (SELECT MAX(num) FROM n m WHERE m.window_start = n.window_start);

-- answer
WITH n AS (
  SELECT auction, window_start, count(*) AS num FROM hops(bid, 2000, 10000) GROUP BY ALL)
SELECT auction, num FROM n
WHERE num >= (SELECT max(num) FROM n m WHERE m.window_start = n.window_start)

-- next
-- EXISTS.
-- sources: auction bid
CREATE TABLE exists_such AS SELECT b.auction, b.price FROM bid b WHERE b.price > 1000000 AND EXISTS (SELECT 1 FROM auction a WHERE a.id = b.auction AND a.category = 11);

-- answer
SELECT b.auction, b.price FROM bid b WHERE b.price > 1000000 AND EXISTS (SELECT 1 FROM auction a WHERE a.id = b.auction AND a.category = 11)

-- next
-- NOT EXISTS.
-- sources: auction bid
CREATE TABLE not_exists AS SELECT * FROM auction a WHERE NOT EXISTS (SELECT 1 FROM bid b WHERE b.auction = a.id AND b.price > 10000000);

-- answer
SELECT * FROM auction a WHERE NOT EXISTS (SELECT 1 FROM bid b WHERE b.auction = a.id AND b.price > 10000000)

-- next
-- Two conditions, grouped.
-- sources: auction bid
CREATE TABLE two_ins AS SELECT category, COUNT(*) AS n FROM auction WHERE id IN (SELECT auction FROM bid WHERE price > 50000000) AND seller IN (SELECT bidder FROM bid) AND reserve > 1000 GROUP BY category;

-- answer
SELECT category, COUNT(*) AS n FROM auction WHERE id IN (SELECT auction FROM bid WHERE price > 50000000) AND seller IN (SELECT bidder FROM bid) AND reserve > 1000 GROUP BY category

-- next
-- Equal to a maximum.
-- sources: bid
CREATE TABLE highest AS SELECT auction, bidder, price FROM bid b WHERE price = (SELECT MAX(price) FROM bid m WHERE m.auction = b.auction);

-- answer
SELECT auction, bidder, price FROM bid b WHERE price = (SELECT MAX(price) FROM bid m WHERE m.auction = b.auction)
